"""``assay-stream seal``: the commands that ``sealing`` does not declare itself."""

from assay_stream.cli import seal_checking, seal_proofs
from assay_stream.cli.sealing import seal_app as seal_app

seal_app.command()(seal_checking.verify)
seal_app.command()(seal_checking.archive)
seal_app.command()(seal_proofs.prove)
seal_app.command("check-proof")(seal_proofs.check_proof_file)
seal_app.command()(seal_proofs.checkpoint)
seal_app.command()(seal_proofs.vkey)
