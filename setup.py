"Packaging: everything is read from settings.ini."
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
config = ConfigParser(delimiters=["="])
config.read(here / "settings.ini", encoding="utf-8")
cfg = config["DEFAULT"]
extras = {key.removesuffix("_requirements"): value.split()
          for key, value in cfg.items() if key.endswith("_requirements")}

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
    package_data={"gnn_bandits": ["*.mplstyle", "assets/*"],
                  "gnn_bandits.paper": ["*.csv", "*.json"]},
    python_requires=f">={cfg['min_python']}",
    install_requires=cfg["requirements"].split(),
    extras_require=extras,
    entry_points={
        "console_scripts": cfg["console_scripts"].split(),
        "nbdev": [f"{cfg['lib_path']}={cfg['lib_path']}._modidx:d"],
    },
    zip_safe=False,
)
