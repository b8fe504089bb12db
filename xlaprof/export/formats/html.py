"""The page of ``xlaprof report --html``: one file for a browser, which loads nothing."""

from __future__ import annotations

import shlex

from xlaprof.errors import UserError
from xlaprof.export.written import Job, Written
from xlaprof.pages.html.write import write


def export(job: Job) -> Written:
    """Write the page to the file ``job.out``."""
    if job.read is None:
        raise UserError(f"{job.source} can be read only once: the page needs its recording as a file")
    out = str(job.out)
    run = write(str(job.source), out, job.read, force=job.force)
    return Written(
        format="html",
        path=out,
        files=(out,),
        events=run.report.run.events,
        steps=sum(stat.count for stat in run.report.steps),
        executions=run.run.executed.count,
        hint=f"python -m webbrowser -t {shlex.quote(out)}",
        notes=run.report.run.notes,
        whole=True,
    )
