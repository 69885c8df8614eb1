"""`ltr train`: train a `NeuralRanker` on a table, with or without boosted trees."""

from argparse import ArgumentTypeError, Namespace
from contextlib import suppress
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any

from ltr.cli.arguments import (
    LineParser,
    add_roles,
    at_least_one,
    import_from_here,
    require_roles,
    roles_of,
    saved_files,
    table_files,
    up_to,
)
from ltr.cli.errors import CommandError
from ltr.files import check_path
from ltr.names import plural

if TYPE_CHECKING:
    from ltr.losses import RankingLoss
    from ltr.losses.base import Loss

_NEXT = "Go on with: ltr test {0} TABLE | ltr predict {0} TABLE --output scores.parquet"


def train(parser: LineParser, args: list[str]) -> None:
    """Train a ranker on a table, and write it into a folder.

    The table has one row for each document. Options name its columns, such as that of the query.

      ltr train train.parquet --qid query --label grade --output model
      ltr train train.parquet --qid query --label grade --with lightgbm --output model
      ltr train shop.csv --qid query --label click buy --trade-off click=1 buy=3 --output model
      ltr train Fold1/train.txt --val Fold1/vali.txt --output model
    """
    add = parser.add_argument
    tables = "CSV, Parquet or LETOR text, or lists of `ltr convert`"
    parser.reads(add("table", metavar="TABLE", help=tables), table_files)
    about = "of the model; an older model is replaced"
    parser.writes(
        add("--output", required=True, type=_folder, metavar="FOLDER", help=about), saved_files
    )
    add_roles(parser)
    about = "to stop early on; default: a fifth of the queries"
    parser.reads(add("--val", metavar="TABLE", help=about), table_files)
    efforts = ["fast", "default", "best"]
    add("--effort", choices=efforts, default="default", help="training time against quality")
    add("--with", dest="trees", choices=["lightgbm"], help="average with LightGBM's trees")
    add("--loss", metavar="NAME", help="of the networks: SoftNDCG, own.MyLoss; default: XENDCG")
    about = "the weight of each label; default: 1"
    add("--trade-off", nargs="+", type=_weight, metavar="LABEL=1", help=about)
    about = "scores only rise (=1) or fall (=-1) with this column of numbers"
    add("--monotone", nargs="+", type=_direction, metavar="COLUMN=1", help=about)
    about = "columns relative to the list: rank and difference from its mean; default: auto"
    add("--relative", choices=["auto", "true", "false"], default="auto", help=about)
    add("--metric", default="ndcg@10", help="of early stopping; default: ndcg@10")
    add("--seed", type=up_to(2**32 - 1), default=0, help="of all random numbers; default: 0")
    about = "CPU threads; default: as OpenMP says (OMP_NUM_THREADS)"
    add("--threads", type=at_least_one, metavar="N", help=about)
    add("--quiet", action="store_true", help="no line of progress")
    given = parser.parse_args(args)
    directions = dict(given.monotone or ())
    if len(directions) < len(given.monotone or ()):
        parser.error("--monotone must name each column once")
    out = check_path("output", given.output)
    for name in ("position", "protected", "metric"):
        if given.trees and getattr(given, name) != parser.get_default(name):
            parser.error(f"--{name} must not be given with --with {given.trees}, which ignores it")

    require_roles(given, given.table, ["qid", "label"])

    import torch

    from ltr.datasets.prepare import prepare_varied, validated
    from ltr.estimators import Blend, NeuralRanker
    from ltr.estimators.parameters import max_levels

    if given.threads is not None:
        torch.set_num_threads(given.threads)
    verbose = 0 if given.quiet else 1
    ranker: Any = NeuralRanker(
        effort=given.effort,
        relative={"true": True, "false": False}.get(given.relative, "auto"),
        monotone=directions or None,
        metric=given.metric,
        random_state=given.seed,
        verbose=verbose,
    )
    share = 0 if given.val else ranker.validation
    most = partial(max_levels, ranker)
    options = {"validation": share, "max_levels": most, "exact": bool(given.trees)}
    data = prepare_varied(given.table, roles_of(given), **options)
    if given.val:
        data = validated(data, given.val)
    ranker.set_params(loss=_of_labels(given, _loss(given), data.schema.labels))
    if given.trees:
        ranker = Blend(ranker, n_jobs=given.threads, verbose=verbose)
    ranker.fit(data)
    ranker.save(out)
    held = "none" if data.val is None else len(data.val)
    queries, documents = len(data.train), data.train.offsets[-1]
    trained = f"trained on {queries} {plural(queries, 'query', 'queries')}, "
    trained += f"{documents} {plural(documents, 'document')}"
    print(f"wrote {given.output}: {trained}; {held} held out to stop early")
    print(_NEXT.format(given.output))


def _folder(text: str) -> str:
    path = check_path("output", text)
    if path.exists() and not path.is_dir():
        raise ArgumentTypeError(f"must be a folder, got the file {text}")
    return text


def _weight(text: str) -> tuple[str, float]:
    label, _, weight = text.rpartition("=")
    with suppress(ValueError):
        if label and (value := float(weight)) >= 0 and value < float("inf"):
            return label, value
    raise ArgumentTypeError(f"must be LABEL=WEIGHT with a weight >= 0, got {text!r}")


def _direction(text: str) -> tuple[str, int]:
    column, _, direction = text.rpartition("=")
    if not column or direction not in ("1", "-1"):
        raise ArgumentTypeError(f"must be COLUMN=1 or COLUMN=-1, got {text!r}")
    return column, int(direction)


def _of_labels(
    given: Namespace, loss: "RankingLoss | None", labels: tuple[str, ...]
) -> "Loss | None":
    """Return the loss of several labels, with the weights of `--trade-off`."""
    from ltr.losses import XENDCG, SeveralLabels

    pairs = dict(given.trade_off or ())
    if given.trade_off and (len(pairs) < len(given.trade_off) or {*pairs} != {*labels}):
        raise CommandError(
            f"--trade-off must name each label once, {', '.join(labels)}, got {', '.join(pairs)}"
        )
    if len(labels) < 2:
        if pairs:
            raise CommandError(f"--trade-off needs several labels, got {', '.join(labels)}")
        return loss
    if given.trees:
        raise CommandError(f"--with {given.trees} takes one label, got {', '.join(labels)}")
    loss_of_label = XENDCG(gamma="random") if loss is None else loss
    return SeveralLabels({x: (deepcopy(loss_of_label), pairs.get(x, 1.0)) for x in labels})


def _loss(given: Namespace) -> "RankingLoss | None":
    """Return the loss; if positions or a protected group are given, a loss that uses them."""
    from ltr.config import from_config
    from ltr.losses import XENDCG, Penalized, RankingLoss, Unbiased

    loss = None
    if given.loss is not None:
        package, dot, _ = given.loss.partition(".")
        path = given.loss if dot else f"ltr.losses.{given.loss}"
        if dot:
            import_from_here()
        loss = from_config({"class_path": path}, RankingLoss, [package] if dot else [])
        if type(loss) is RankingLoss:
            raise CommandError("--loss must not be RankingLoss, the base class of the losses")
    # Few users look at low positions: without clipping, single clicks there would dominate.
    unbiased = partial(Unbiased, clip=10.0)
    for name, kind in (("position", unbiased), ("protected", Penalized)):
        if getattr(given, name) and (loss is None or name not in loss.side_inputs):
            loss = kind(XENDCG(gamma="random") if loss is None else loss)
    return loss
