// An OpenID Connect provider for tests: npm's oidc-provider with its own pages for signing in and consent.
// node oidc_provider.mjs PACKAGE_FOLDER PORT REDIRECT CLIENT_SECRET
import { pathToFileURL } from "node:url";

const [folder, port, redirect, secret] = process.argv.slice(2);
const { Provider } = await import(pathToFileURL(`${folder}/lib/index.js`));
const issuer = `http://localhost:${port}`;
const provider = new Provider(issuer, {
  clients: [{ client_id: "console", client_secret: secret, redirect_uris: [redirect] }],
  claims: { openid: ["sub"], email: ["email", "email_verified"], groups: ["groups"] },
  scopes: ["openid", "email", "groups"],
  conformIdTokenClaims: false, // claims of scopes stand in the ID token
  pkce: { required: () => true },
  findAccount: (_, id) => ({
    accountId: id,
    claims: async () => ({ sub: id, email: `${id}@example.com`, email_verified: true, groups: id === "alice" ? ["soc"] : [] }),
  }),
});
provider.listen(Number(port), "localhost", () => console.log("listening"));
