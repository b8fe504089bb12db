"""Run the tests, and what failed beside others once more, alone: ``python -m tests.again ARGUMENTS OF PYTEST``.

Many of these tests measure time, and a busy machine takes it away where it likes: of thousands of them one meets that,
sooner or later. A test that fails twice fails, and so do more than a few failures, at once. A test that passes alone
is named, so that somebody mends it.
"""

import json
import subprocess
import sys
from pathlib import Path

A_FEW = 5
KEPT = Path(".pytest_cache/v/cache/lastfailed")


def main(arguments: list[str]) -> int:
    KEPT.unlink(missing_ok=True)  # of a run before: a run without a failure writes none
    pytest = [sys.executable, "-m", "pytest", *arguments]
    code = subprocess.run(pytest, check=False).returncode
    failed = sorted(json.loads(KEPT.read_text())) if code == 1 and KEPT.exists() else []
    if not 0 < len(failed) <= A_FEW:
        return code
    print("\n== Once more, alone: " + ", ".join(failed), flush=True)
    alone = [*pytest, "-n", "0", "--last-failed", "--last-failed-no-failures=none"]
    code = subprocess.run(alone, check=False).returncode
    if code == 0:
        print("\n== Passed alone, failed beside other tests (mend it): " + ", ".join(failed))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
