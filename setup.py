"Packaging: everything is read from settings.ini."
from configparser import ConfigParser
from pathlib import Path
from runpy import run_path
from shutil import copystat

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

here = Path(__file__).resolve().parent
typed = run_path(str(here / "scripts" / "typed.py"))    # its functions, by name
config = ConfigParser(delimiters=["="])
config.read(here / "settings.ini", encoding="utf-8")
cfg = config["DEFAULT"]
extras = {key.removesuffix("_requirements"): value.split()
          for key, value in cfg.items() if key.endswith("_requirements")}


class BuildWithStubs(build_py):
    "The package, and stubs for what type checkers cannot read in it; an editable install has none."
    def stubs(self):
        texts = {} if self.editable_mode else dict(typed["stubs"]())
        return {Path(self.build_lib, "gnn_bandits", name): text for name, text in texts.items()}

    def run(self):
        super().run()
        for path, text in self.stubs().items():
            typed["put"](path, text)
            copystat(path.with_suffix(".py"), path)    # same sources, same wheel

    def get_outputs(self, include_bytecode=1):
        return [*super().get_outputs(include_bytecode), *map(str, self.stubs())]


setup(
    name=cfg["lib_name"],
    version=cfg["version"],
    description=cfg["description"],
    long_description=(here / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author=cfg["author"],
    author_email=cfg["author_email"],
    url=cfg["git_url"],
    license="Apache-2.0",
    keywords=cfg["keywords"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        f"Intended Audience :: {cfg['audience']}",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering",
    ],
    packages=find_packages(include=["gnn_bandits", "gnn_bandits.*"],
                           exclude=["gnn_bandits.project"]),    # for clones only
    package_data={"gnn_bandits": ["*.mplstyle", "py.typed", "assets/*"],
                  "gnn_bandits.paper": ["*.csv", "*.json"]},
    python_requires=f">={cfg['min_python']}",
    install_requires=cfg["requirements"].split(),
    extras_require=extras,
    entry_points={
        "console_scripts": cfg["console_scripts"].split(),
        "nbdev": [f"{cfg['lib_path']}={cfg['lib_path']}._modidx:d"],
    },
    cmdclass={"build_py": BuildWithStubs},
    zip_safe=False,
)
