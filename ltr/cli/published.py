"""What is known of published data sets: their layout, size, source and terms. Nothing is read."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedSet:
    """A published data set in the form of LETOR text.

    Attributes:
        name: its name in papers.
        about: what it is, in a line.
        layout: the files that its publisher ships, by their paths in the folder to give as `root`.
        features: how many a document has.
        labels: the smallest and the largest grade.
        folds: how many folds it comes with; 1 is a single split.
        source: where its publisher gives the files.
        terms: what the publisher allows, and how sure that is.
        queries: the number of queries; None if unknown.
        documents: the number of documents; None if unknown.
        splits: the split in words, where it is not that of the folds.
        notes: what a reader of the files must know.
        sets: how many sets of files there are in the folder; `fold` chooses one.
    """

    name: str
    about: str
    layout: tuple[str, ...]
    features: int
    labels: tuple[int, int]
    folds: int
    source: str
    terms: str
    queries: int | None = None
    documents: int | None = None
    splits: str = ""
    notes: str = ""
    sets: int = 1


_FOLDS = tuple(f"Fold1/{name}.txt" for name in ("train", "vali", "test"))
_PLAIN = ("train.txt", "vali.txt", "test.txt")
_MICROSOFT = "https://www.microsoft.com/en-us/research/project/"
_LETOR = _MICROSOFT + "letor-learning-rank-information-retrieval/"
_PARTS = "each fold: three fifths of the queries, then one for validation and one for the test"
_ISTELLA = "http://quickrank.isti.cnr.it/istella-dataset/"
_ISTELLA_TERMS = (
    "non-commercial use only, under the Istella LETOR Licence Agreement; the publisher asks to "
    "cite Dato et al., ACM TOIS 35(2), 2016, and Lucchese et al., SIGIR 2016"
)
_LETOR_4_TERMS = (
    "an agreement to accept before the download, generally taken as research use without "
    "redistribution (not read for this table); cite Qin and Liu, arXiv:1306.2597"
)

PUBLISHED = (
    PublishedSet(
        "MSLR-WEB10K",
        "a sample of MSLR-WEB30K",
        _FOLDS,
        features=136,
        labels=(0, 4),
        folds=5,
        queries=10_000,
        source=_MICROSOFT + "mslr/",
        terms=_LETOR_4_TERMS,
        splits=_PARTS,
        notes="features are not normalized: signed logarithms or quantile bins help networks",
    ),
    PublishedSet(
        "MSLR-WEB30K",
        "web search: queries of Bing, graded by people",
        _FOLDS,
        features=136,
        labels=(0, 4),
        folds=5,
        queries=31_531,
        documents=3_771_125,
        source=_MICROSOFT + "mslr/",
        terms=_LETOR_4_TERMS,
        splits=_PARTS,
        notes="features are not normalized: signed logarithms or quantile bins help networks",
    ),
    PublishedSet(
        "Yahoo-LTRC",
        "web search: the Yahoo! Learning to Rank Challenge (C14), two sets of two countries",
        ("set1.train.txt", "set1.valid.txt", "set1.test.txt", "set2.train.txt and so on"),
        features=700,
        labels=(0, 4),
        folds=1,
        queries=36_251,
        documents=882_747,
        source=(
            "https://research.yahoo.com/datasets (on request), "
            "https://huggingface.co/datasets/YahooResearch/Yahoo-Learning-to-Rank-Challenge"
        ),
        terms=(
            "given on request, under an agreement with Yahoo (not read for this table); cite "
            "Chapelle and Chang, PMLR 14, 2011"
        ),
        splits=(
            "set 1: 19,944, 2,994 and 6,983 queries, 473,134, 71,083 and 165,660 documents; "
            "set 2: 1,266, 1,266 and 3,798 queries, 34,815, 34,881 and 103,174 documents"
        ),
        notes=(
            "the files leave out features of 0; set 1 has 519 of the 700 features, so give "
            "--data.num_features 700 to use one model for both"
        ),
        sets=2,
    ),
    PublishedSet(
        "Istella",
        "web search: Istella LETOR, the full set",
        ("train.txt", "test.txt"),
        features=220,
        labels=(0, 4),
        folds=1,
        queries=33_018,
        documents=10_454_629,
        source=_ISTELLA,
        terms=_ISTELLA_TERMS,
        splits="23,219 queries to train on and 9,799 to test on; none for validation",
        notes="root is the folder `full` of the archive; give --data.validation 0.2",
    ),
    PublishedSet(
        "Istella-S",
        "Istella with fewer documents without relevance, 103 a query on average",
        _PLAIN,
        features=220,
        labels=(0, 4),
        folds=1,
        queries=33_018,
        documents=3_408_630,
        source=_ISTELLA,
        terms=_ISTELLA_TERMS,
        splits="19,245, 7,211 and 6,562 queries to train on, for validation and for the test",
        notes="root is the folder `sample` of the archive",
    ),
    PublishedSet(
        "Istella-X",
        "Istella with many documents a query, about 2,700",
        _PLAIN,
        features=220,
        labels=(0, 4),
        folds=1,
        queries=10_000,
        documents=26_791_447,
        source=_ISTELLA,
        terms="not known for this set; Istella and Istella-S are for non-commercial use only",
        splits="6,000, 2,000 and 2,000 queries to train on, for validation and for the test",
        notes="the range of the labels is that of the other two, and not checked for this one",
    ),
    PublishedSet(
        "MQ2007",
        "LETOR 4.0: TREC's Million Query track of 2007 on .gov2",
        _FOLDS,
        features=46,
        labels=(0, 2),
        folds=5,
        source=_LETOR + "letor-4-0/",
        terms=_LETOR_4_TERMS,
        splits=_PARTS,
        notes=(
            "about 1,700 queries, by the publisher; the files are those of the supervised setting; "
            "version NULL writes missing values as NULL, MIN and QueryLevelNorm have none"
        ),
    ),
    PublishedSet(
        "MQ2008",
        "LETOR 4.0: TREC's Million Query track of 2008 on .gov2",
        _FOLDS,
        features=46,
        labels=(0, 2),
        folds=5,
        queries=784,
        documents=15_211,
        source=_LETOR + "letor-4-0/",
        terms=_LETOR_4_TERMS,
        splits=_PARTS,
        notes="220 of the queries have no relevant document, so an NDCG depends on what they count",
    ),
    PublishedSet(
        "OHSUMED",
        "LETOR 2.0: medical abstracts",
        tuple(f"Fold1/{name}.txt" for name in ("trainingset", "validationset", "testset")),
        features=25,
        labels=(0, 2),
        folds=5,
        queries=106,
        documents=16_140,
        source=_LETOR,
        terms=(
            "non-commercial research, generally (not read for this table); cite Qin et al., LETOR, "
            "2010, and Hersh et al., SIGIR 1994"
        ),
        splits=_PARTS,
        notes="lines end in CR LF; LETOR 3.0 has the same queries with other features and names",
    ),
)
"""The data sets, in the order in which `ltr datasets` lists them."""
