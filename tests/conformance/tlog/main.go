// Command tlogcheck verifies a C2SP tlog-proof with the Go project's signed-note reader and the Merkle library of
// transparency-dev: tlogcheck VKEY PROOF LEAF-HASH-HEX.
package main

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	verifier := must(note.NewVerifier(os.Args[1]))
	head, checkpoint, _ := strings.Cut(string(must(os.ReadFile(os.Args[2]))), "\n\n")
	lines := strings.Split(head, "\n")
	if lines[0] != "c2sp.org/tlog-proof@v1" {
		log.Fatal("not a tlog-proof")
	}
	index := must(strconv.ParseUint(strings.TrimPrefix(lines[1], "index "), 10, 64))
	var path [][]byte
	for _, line := range lines[2:] {
		path = append(path, must(base64.StdEncoding.DecodeString(line)))
	}
	opened := must(note.Open([]byte(checkpoint), note.VerifierList(verifier)))
	body := strings.Split(opened.Text, "\n")
	if body[0] != verifier.Name() {
		log.Fatal("the origin is not the name of the key")
	}
	size := must(strconv.ParseUint(body[1], 10, 64))
	root := must(base64.StdEncoding.DecodeString(body[2]))
	leaf := must(hex.DecodeString(os.Args[3]))
	if err := proof.VerifyInclusion(rfc6962.DefaultHasher, index, size, leaf, path, root); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("included: leaf %d of %d in %s\n", index, size, body[0])
}
