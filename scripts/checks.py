"""Run every step of a check, also after one has failed: `checks.py COMMAND ... -- STEP ...`

Each step is `COMMAND STEP`. At the end the steps that failed are listed, and the exit code is 1 if
there are any, so that one failure does not hide another."""
import subprocess
import sys


def run(
    command, # Words before the name of a step
    steps, # Names of the steps, in order
): # Step -> exit code, of those that failed
    "Run all steps in order."
    codes = {}
    for step in steps:
        print(f"== {step}", flush=True)
        if code := subprocess.run([*command, step]).returncode: codes[step] = code
    return codes


def main(argv):
    if "--" not in argv or argv[-1] == "--": sys.exit(__doc__)
    at = argv.index("--")
    command, steps = argv[:at], argv[at + 1:]
    failed = run(command, steps)
    if not failed: return print(f"== all {len(steps)} checks passed")
    print(f"== {len(failed)} of {len(steps)} checks failed:", flush=True)
    for step, code in failed.items(): print(f"   {' '.join(command)} {step}    (code {code})")
    sys.exit(1)


if __name__ == "__main__":
    try: main(sys.argv[1:])
    except KeyboardInterrupt: sys.exit(130)
