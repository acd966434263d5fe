"""``assay-stream topics restore-mirror``: fail over to a cluster that MirrorMaker 2 copied the topics to."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

from assay_stream.cli.options import Apply, Bootstrap
from assay_stream.cli.output import print_json
from assay_stream.cli.parameters import argument, flag
from assay_stream.cli.shared import as_admin, collecting_seldom
from assay_stream.config import Settings, command_settings
from assay_stream.errors import IntegrityError
from assay_stream.files.spool import LogSpool
from assay_stream.kafka.connection import AIOKafkaAdminClient
from assay_stream.kafka.exact import ExactWriter
from assay_stream.kafka.mirror import Mirror
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Role


def topics_restore_mirror(
    alias: Annotated[
        str, argument("MirrorMaker's name for the lost cluster: its topics begin with it.", metavar="ALIAS")
    ],
    apply: Apply = False,
    drop_checkpoints: bool = flag("Leave out checkpoints over evidence that was not replicated."),
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Write what MirrorMaker 2 mirrored into the empty topics of this deployment, at the offsets that records had.

    Evidence and seals then hold on this cluster as they are, and workers go on from there. Prints what it writes and
    what was not replicated as one JSON object, before it writes. Refuses if an offset is not certain. Stop MirrorMaker
    and run `topics apply` first. If it is interrupted, run it again: it continues.
    """
    settings = command_settings(bootstrap_servers=bootstrap_servers)
    with collecting_seldom(), LogSpool() as spool:

        async def restore(admin: AIOKafkaAdminClient, settings: Settings) -> None:
            found = Mirror(settings, alias, spool)
            await found.read()
            rerouted = topic_names(settings)[Role.REROUTED]
            writer = ExactWriter(settings, spool, found.spans, restamped={rerouted})
            cost = await writer.examine(admin)
            print_json(
                {
                    "records": dict(sorted(found.records.items())),
                    "left_to_write": asdict(cost),
                    "to_join": found.to_join,
                    "not_replicated": {role: count for role, count in sorted(found.not_replicated.items()) if count},
                    "checkpoints_dropped": found.checkpoints_dropped,
                }
            )
            if found.checkpoints_dropped and not drop_checkpoints:
                raise IntegrityError(
                    "mirror_behind_seals",
                    f"{found.checkpoints_dropped} checkpoints seal evidence that was not replicated. Keep them, and "
                    "the heads you noted, as proof that it existed, and repeat with --drop-checkpoints",
                )
            if apply:
                await writer.write(admin)
                print_json({"restored": sum(found.records.values())})

        asyncio.run(as_admin(settings, restore))
