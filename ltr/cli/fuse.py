"""`ltr fuse`: combine TREC runs into one."""

from itertools import islice
from pathlib import Path

from ltr.cli.arguments import LineParser
from ltr.cli.errors import CommandError

_ABOUT = """\
Combine the runs of several rankers into one. A run has lines `qid Q0 docno rank score tag`, and may
be gzipped; only the score counts. The result has all queries and documents of the runs. A run that
lacks a document adds nothing to it by rrf, combsum and combmnz.
"""

_EPILOG = """\
  ltr fuse bm25.run neural.run --out both.run                   reciprocal rank fusion
  ltr fuse bm25.run neural.run --method combsum --weights 0.3 0.7 --out both.run
  ltr fuse bm25.run neural.run --method combsum --qrels train.txt --out both.run
"""

_METHODS = ["rrf", "combsum", "combmnz", "borda", "condorcet"]
_NORMALIZATIONS = ["min_max", "z", "rank", "none"]


def run(command: str, args: list[str]) -> int:
    """Run `ltr fuse`.

    Raises:
        ValueError: an option or a run is wrong.
    """
    given = _parser(command).parse_args(args)
    out = Path(given.out).expanduser()
    if out.exists() and not out.is_file():
        kind = "folder" if out.is_dir() else "device"
        raise CommandError(f"--out must be a file, got the {kind} {given.out}")
    if given.weights is not None and given.qrels is not None:
        raise CommandError("--weights and --qrels exclude each other: --qrels chooses the weights")
    for name, value in (("--k", given.k), ("--top-k", given.top_k)):
        if value is not None and value < 1:
            raise CommandError(f"{name} must be >= 1, got {value}")
    for path in [*given.runs, *([] if given.qrels is None else [given.qrels])]:
        if not Path(path).is_file():
            raise CommandError(f"{path}: no such file")

    # these import torch, which takes a while; the mistakes above are reported at once
    from ltr.metrics.trec import read_qrels, read_run, write_run
    from ltr.rerank import fuse, fusion_weights

    runs = [read_run(path) for path in given.runs]
    options = {"method": given.method, "normalize": given.normalize, "k": given.k}
    weights = given.weights
    if given.qrels is not None:
        weights = fusion_weights(runs, read_qrels(given.qrels), metric=given.metric, **options)
        pairs = zip(weights, given.runs, strict=True)
        print("weights " + ", ".join(f"{weight:.2f} {path}" for weight, path in pairs))
    fused = fuse(runs, weights=weights, **options)
    fused = {qid: dict(islice(found.items(), given.top_k)) for qid, found in fused.items()}
    out.parent.mkdir(parents=True, exist_ok=True)
    write_run(out, fused, given.tag)
    count = sum(map(len, fused.values()))
    print(f"wrote {given.out}: {len(fused):,} queries, {count:,} documents")
    return 0


def _parser(command: str) -> LineParser:
    parser = LineParser(f"ltr {command}", description=_ABOUT, epilog=_EPILOG)
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="TREC runs")
    add("--out", required=True, metavar="FILE.run", help="gzipped if it ends in .gz")
    add("--method", choices=_METHODS, default="rrf", help="default: rrf")
    about = "of scores, for combsum and combmnz; default: min_max"
    add("--normalize", choices=_NORMALIZATIONS, default="min_max", help=about)
    add("--weights", nargs="+", type=float, metavar="W", help="one for each run; default: 1")
    add("--qrels", metavar="FILE", help="choose the weights by these judgements")
    add("--metric", default="ndcg@10", help="for --qrels; default: ndcg@10")
    add("--k", type=int, default=60, help="the constant of rrf; default: 60")
    add("--top-k", type=int, metavar="K", help="write at most this many documents for a query")
    add("--tag", default="ltr", help="the name of the run, one word; default: ltr")
    return parser
