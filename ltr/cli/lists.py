"""`ltr lists`: training lists for text models from what a first stage found."""

from ltr.cli.arguments import LineParser, at_least_one, existing_file, new_file


def lists(parser: LineParser, args: list[str]) -> None:
    """Make training lists of a run, its judgements and the texts.

    The run has lines `qid Q0 docno rank score tag`, the judgements `qid 0 docno rel`. Texts are
    lines `name<TAB>text`, or JSON with _id, text and title. The result has a line of JSON for each
    query, with query, documents and labels, for CrossEncoderLoss and EncoderLoss.

      ltr lists bm25.run qrels.txt --queries q.tsv --documents d.jsonl.gz --output lists.jsonl
      ltr lists bm25.run qrels.txt --queries q.tsv --documents d.tsv --negatives 20 --skip 0.5
        --output lists.jsonl
    """
    add = parser.add_argument
    parser.reads(add("run", metavar="RUN", type=existing_file, help="TREC run of the first stage"))
    parser.reads(add("qrels", metavar="QRELS", type=existing_file, help="TREC judgements"))
    for name in ("queries", "documents"):
        about = f"texts of the {name}"
        option = add(f"--{name}", required=True, metavar="FILE", type=existing_file, help=about)
        parser.reads(option)
    written = add("--output", required=True, type=new_file(), metavar="FILE.jsonl", help="lists")
    parser.writes(written)
    add("--depth", type=at_least_one, default=50, help="candidates of a query; default: 50")
    about = "most documents with label 0 in a list, drawn at random; default: all"
    add("--negatives", type=at_least_one, metavar="N", help=about)
    about = "documents without judgement: label 0, or left out; default: irrelevant"
    add("--unjudged", choices=["irrelevant", "drop"], default="irrelevant", help=about)
    about = "leave out unjudged documents that score above the best relevant one minus this"
    add("--skip", type=float, metavar="MARGIN", help=about)
    about = "add relevant documents that were not found"
    add("--add-relevant", action="store_true", help=about)
    add("--seed", type=int, default=0, help="of --negatives; default: 0")
    options = vars(parser.parse_args(args))
    output = options.pop("output")

    # This module imports torch, which takes a while, so wrong arguments are reported first.
    from ltr.rerank import lists_from_run

    made = lists_from_run(**options)
    made.write(output)
    print(made)
    print(f"wrote {output}")
