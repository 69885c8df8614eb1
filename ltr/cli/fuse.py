"""`ltr fuse`: combine TREC runs into one."""

from itertools import islice

from ltr.cli.arguments import LineParser, at_least_one, existing_file, new_file
from ltr.names import plural

_METHODS = ["rrf", "combsum", "combmnz", "borda", "condorcet"]
_NORMALIZATIONS = ["min_max", "z", "rank", "none"]


def fuse(parser: LineParser, args: list[str]) -> None:
    """Combine the runs of several rankers into one.

    A run has lines `qid Q0 docno rank score tag`, and may be gzipped; only the score counts. The
    result has all queries and documents of the runs. With rrf, combsum and combmnz, a run that
    lacks a document adds nothing to the document's score.

      ltr fuse bm25.run neural.run --output both.run                   reciprocal rank fusion
      ltr fuse bm25.run neural.run --method combsum --weights 0.3 0.7 --output both.run
      ltr fuse bm25.run neural.run --method combsum --qrels train.txt --output both.run
    """
    add = parser.add_argument
    parser.reads(add("runs", nargs="+", metavar="RUN", type=existing_file, help="TREC runs"))
    about = "gzipped if it is .gz"
    parser.writes(add("--output", required=True, type=new_file(), metavar="FILE.run", help=about))
    add("--method", choices=_METHODS, default="rrf", help="default: rrf")
    about = "of scores, for combsum and combmnz; default: min_max"
    add("--normalize", choices=_NORMALIZATIONS, default="min_max", help=about)
    either = parser.add_mutually_exclusive_group()
    weight = "one for each run; default: 1"
    either.add_argument("--weights", nargs="+", type=float, metavar="W", help=weight)
    chosen = "choose the weights by these judgements"
    parser.reads(either.add_argument("--qrels", type=existing_file, metavar="FILE", help=chosen))
    add("--metric", help="for --qrels; default: ndcg@10")
    add("--k", type=at_least_one, default=60, help="the constant of rrf; default: 60")
    add("--top-k", type=at_least_one, metavar="K", help="most documents of a query to write")
    add("--tag", default="ltr", help="the name of the run, one word; default: ltr")
    given = parser.parse_args(args)
    if given.metric is not None and given.qrels is None:
        parser.error("--metric is for --qrels, which is missing")

    # These modules import torch, which takes a while, so wrong arguments are reported first.
    from ltr import rerank
    from ltr.metrics.trec import read_qrels, read_run, write_run

    runs = [read_run(path) for path in given.runs]
    options = {"method": given.method, "normalize": given.normalize, "k": given.k}
    weights = given.weights
    if given.qrels is not None:
        judged = read_qrels(given.qrels)
        metric = given.metric or "ndcg@10"
        weights = rerank.fusion_weights(runs, judged, metric=metric, **options)
        pairs = zip(weights, given.runs, strict=True)
        print("weights " + ", ".join(f"{weight:.2f} {path}" for weight, path in pairs))
    fused = rerank.fuse(runs, weights=weights, **options)
    fused = {qid: dict(islice(scores.items(), given.top_k)) for qid, scores in fused.items()}
    write_run(given.output, fused, given.tag)
    count = sum(map(len, fused.values()))
    queries = f"{len(fused):,} {plural(len(fused), 'query', 'queries')}"
    print(f"wrote {given.output}: {queries}, {count:,} {plural(count, 'document')}")
