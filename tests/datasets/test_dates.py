"""Dates become days since 1970-01-01 and the hour of the day."""

import datetime as dt
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ltr.datasets import Schema, TableDataModule, convert, open_lists, read_table
from ltr.datasets.column_steps import Date, Number
from ltr.datasets.frames import Frame
from ltr.datasets.infer import DateColumn, scan
from ltr.datasets.prepare import scan_table
from ltr.datasets.table_files import load_table

EAST = dt.timezone(dt.timedelta(hours=5, minutes=30))
WHEN = dt.datetime(2024, 2, 29, 18, 45, 36)
DAY = (WHEN - dt.datetime(1970, 1, 1)).days
HOUR = np.float32(18 + 45 / 60 + 36 / 3600)


def table_of(values, **columns):
    return pa.table({"q": [1] * len(values), "at": values, **columns})


def numbers(values):
    """Return the schema of a column, and what becomes of it."""
    table = load_table(
        table_of(values) if not isinstance(values, pd.Series | pl.Series) else values
    )
    schema = Schema.infer(table, qid="q")
    return schema, read_table(table, schema, needs_label=False).features


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Kolkata"])
def test_times_of_every_unit_and_zone_are_utc(unit, zone):
    given = WHEN if zone is None else WHEN.replace(tzinfo=dt.UTC)
    schema, found = numbers(pa.array([given, None], pa.timestamp(unit, zone)))
    assert schema.features == {"at": 2}
    assert schema.dates == {"at": "utc" if zone else "naive"}
    assert found[0].tolist() == [DAY, HOUR]
    assert np.isnan(found[1]).all()


@pytest.mark.parametrize("dtype", [pa.date32(), pa.date64(), pa.timestamp("ns")])
def test_a_column_without_a_time_of_day_is_days_alone(dtype):
    days = [WHEN.date(), dt.date(1969, 12, 31), None]
    schema, found = numbers(pa.array(days, pa.date32()).cast(dtype))
    assert schema.features == {"at": 1}
    assert schema.dates == {"at": "naive"}
    np.testing.assert_array_equal(found[:, 0], np.array([DAY, -1, np.nan], np.float32))


def test_days_and_hours_agree_with_python_over_the_whole_range():
    rng = np.random.default_rng(0)
    first = dt.datetime(1, 1, 1)
    span = int((dt.datetime.max - first).total_seconds())
    moments = [first + dt.timedelta(seconds=int(s)) for s in rng.integers(0, span, 500)]
    moments += [first, dt.datetime(9999, 12, 31, 23, 59, 59), dt.datetime(1969, 12, 31, 23, 30)]
    _, found = numbers(pa.array(moments, pa.timestamp("us")))
    days = [moment.toordinal() - dt.date(1970, 1, 1).toordinal() for moment in moments]
    assert found[:, 0].tolist() == days  # float32 holds each day
    hours = [one.hour + one.minute / 60 + one.second / 3600 for one in moments]
    np.testing.assert_allclose(found[:, 1], hours, rtol=2e-7)


@pytest.mark.parametrize(
    ("text", "zone", "hour"),
    [
        ("2024-02-29", "naive", 0),
        ("2024-02-29T18", "naive", 18),
        ("2024-02-29 18:45", "naive", 18.75),
        ("2024-02-29T18:45:36", "naive", HOUR),
        ("2024-02-29 18:45:36.000000", "naive", HOUR),
        (" 2024-02-29T18:45:36.0000001 ", "naive", HOUR),
        ("2024-02-29T18:45:36Z", "utc", HOUR),
        ("2024-03-01T00:15:36+05:30", "utc", HOUR),
        ("2024-03-01T00:15:36+0530", "utc", HOUR),
        ("2024-02-29 13:45:36-05", "utc", HOUR),
    ],
)
def test_text_that_is_iso_8601_is_a_date(text, zone, hour):
    schema, found = numbers([text, None])
    assert schema.dates == {"at": zone}
    assert schema.features == {"at": 1 + (hour > 0)}
    assert found[0].tolist() == [DAY, hour][: found.shape[1]]
    assert np.isnan(found[1]).all()


@pytest.mark.parametrize(
    "text",
    [
        *("20240229", "2024", "2024-02", "2024-2-9", "29.02.2024", "2024-W09", "24-02-29", "n/a"),
        *("2024-02-30", "2024-02-29Z", "2024-02-29T25:00", "2024-02-29T18:45:36,5", "12024-02-29"),
        *("2024-02-29T1845", "2024-02-29T18:45 +05:30", "2024-02-29t18:45z", "٢٠٢٤-02-29", ""),
    ],
)
def test_other_text_is_a_category(text):
    schema = Schema.infer(table_of(["2024-02-29", text]), qid="q")
    assert schema.dates == {}
    assert [*schema.categories] == ["at"]


def test_text_may_begin_with_missing_values():
    schema, found = numbers([None] * 100 + ["2024-02-29"])
    assert schema.dates == {"at": "naive"}
    assert found[100].tolist() == [DAY]


def test_text_without_a_value_is_no_date():
    table = table_of(pa.nulls(2, pa.string()))
    assert [*Schema.infer(table, qid="q").categories] == ["at"]


def test_a_column_that_is_named_as_category_stays_text():
    table = table_of(["2024-02-29", "2024-03-01"]).append_column("x", [[1, 2]])
    assert Schema.infer(table, qid="q", categories=["at"]).dates == {}
    assert Schema.infer(table, qid="q", features=["x"]).dates == {}
    assert Schema.infer(table, qid="q", features=["at"]).dates == {"at": "naive"}
    coded = table.set_column(1, "at", table.column("at").dictionary_encode())
    assert [*Schema.infer(coded, qid="q").categories] == ["at"]


@pytest.mark.parametrize(
    "values",
    [
        [WHEN, WHEN.replace(tzinfo=EAST)],
        [WHEN.replace(tzinfo=EAST), None, WHEN],
        [WHEN.date(), WHEN],
        [pd.NaT, WHEN, WHEN.date()],
    ],
)
def test_objects_of_several_kinds_are_refused(values):
    frame = pd.DataFrame({"q": [1] * len(values), "at": pd.Series(values, dtype=object)})
    with pytest.raises(
        ValueError, match=r"row \d, column 'at'.*(one kind|mixed types).*row 0|mixed"
    ):
        load_table(frame)


def test_text_of_several_zones_is_utc_and_mixed_text_is_refused():
    _schema, found = numbers(["2024-02-29T18:45:36Z", "2024-03-01T00:15:36+05:30"])
    assert found[0].tolist() == found[1].tolist() == [DAY, HOUR]
    with pytest.raises(ValueError, match=r"row 2, column 'at'.*time zone.*'2024-02-29T18Z'.*row 0"):
        numbers(["2024-02-29", None, "2024-02-29T18Z"])
    # a column with other text is a category, whatever it contains
    assert Schema.infer(table_of(["2024-02-29", "2024-02-29T18Z", "soon"]), qid="q").dates == {}


@pytest.mark.parametrize(
    "values",
    [
        pa.array([0, 2_932_897], pa.int32()).cast(pa.date32()),
        pa.array([0, -719_163], pa.int32()).cast(pa.date32()),
        pa.array([0, 2**62], pa.int64()).cast(pa.timestamp("s")),
        pa.array([0, -(2**62)], pa.int64()).cast(pa.timestamp("us")),
        pa.array(["2024-01-01", "0000-01-01"]),
    ],
)
def test_dates_out_of_range_name_the_row(values):
    with pytest.raises(ValueError, match=r"row 1, column 'at'.*0001-01-01 to 9999-12-31.*day"):
        numbers(values)


def test_frames_of_every_library_give_the_same():
    days = [dt.date(2024, 1, 1), None, dt.date(2024, 2, 29)]
    times = [WHEN, None, WHEN + dt.timedelta(hours=1)]
    aware = [None if one is None else one.replace(tzinfo=EAST) for one in times]
    columns = {"q": ["a", "b", "a"], "day": days, "at": times, "zoned": aware}
    arrow = pa.table(columns)
    frames = [
        arrow,
        pl.DataFrame(
            arrow.set_column(3, "zoned", [pa.array(aware, pa.timestamp("us", "Asia/Kolkata"))])
        ),
        pd.DataFrame({name: pd.Series(x, dtype=object) for name, x in columns.items()}),
        arrow.to_pandas(),
        arrow.to_pandas(types_mapper=pd.ArrowDtype),
        arrow.to_pandas()
        .assign(day=lambda x: pd.to_datetime(x["day"]))
        .astype({"at": "datetime64[s]", "zoned": "datetime64[ns, America/Lima]"}),
        arrow.to_pandas().assign(day=["2024-01-01", None, "2024-02-29"]),
    ]
    expected = None
    for frame in frames:
        table = load_table(frame)
        schema = Schema.infer(table, qid="q")
        assert schema.features == {"day": 1, "at": 2, "zoned": 2}
        assert schema.dates == {"day": "naive", "at": "naive", "zoned": "utc"}
        found = read_table(frame, schema, needs_label=False).features
        expected = found if expected is None else expected
        np.testing.assert_array_equal(found, expected)
    assert expected[0].tolist() == [19723, DAY, HOUR, DAY, np.float32(HOUR - 5.5)]


def test_periods_and_times_of_day_are_left_out():
    frame = pd.DataFrame(
        {"q": [1, 1], "x": [1, 2], "month": pd.period_range("2024-01", periods=2, freq="M")}
    )
    frame["clock"] = [dt.time(1), dt.time(2)]
    schema = Schema.infer(load_table(frame), qid="q")
    assert schema.features == {"x": 1}
    assert not schema.categories


def test_a_file_that_is_scored_must_have_the_zone_of_the_training():
    naive = Schema.infer(table_of(pa.array([WHEN])), qid="q")
    aware = Schema.infer(table_of(pa.array([WHEN.replace(tzinfo=EAST)])), qid="q")
    with pytest.raises(ValueError, match=r"'at'.*with a time zone.*timestamp\[us\]"):
        read_table(table_of(pa.array([WHEN])), aware, needs_label=False)
    with pytest.raises(ValueError, match=r"'at'.*without a time zone.*timestamp\[us, tz"):
        read_table(table_of(pa.array([WHEN.replace(tzinfo=EAST)])), naive, needs_label=False)
    with pytest.raises(ValueError, match=r"row 1, column 'at'.*with a time zone.*'2024-02-29'"):
        read_table(table_of([None, "2024-02-29"]), aware, needs_label=False)
    with pytest.raises(ValueError, match=r"row 0, column 'at'.*ISO 8601.*'2024-02-30'"):
        read_table(table_of(["2024-02-30"]), naive, needs_label=False)
    with pytest.raises(ValueError, match=r"'at'.*dates.*type int64"):
        read_table(table_of([5]), naive, needs_label=False)
    # other forms of the same dates are as good
    for values in (["2024-02-29T18:45:36"], [WHEN.date()], pa.nulls(1)):
        assert read_table(table_of(values), naive, needs_label=False).num_features == 2


def test_training_without_times_reads_the_days_of_times():
    schema = Schema.infer(table_of([WHEN.date()]), qid="q")
    assert read_table(table_of([WHEN]), schema, needs_label=False).features.tolist() == [[DAY]]


def test_schemas_with_dates_are_plain_data_and_are_compared():
    schema = Schema("q", steps={"x": Number(), "at": Date("utc", hour=True)})
    assert Schema.from_dict(schema.to_dict()) == schema
    other = Schema("q", steps={"x": Number(), "at": Date("naive", hour=True)})
    assert schema.difference(other) == (
        "column 'at': utc dates with the hour, and naive dates with the hour"
    )
    for wrong in ({"at": "local"}, {"y": "utc"}, {"x": 3}):
        with pytest.raises(ValueError, match="schema must be"):
            Schema.from_dict({**schema.to_dict(), "dates": wrong})


def make_rows(rows=400):
    rng = np.random.default_rng(0)
    days = rng.integers(18_000, 20_000, rows)
    hours = rng.integers(0, 24, rows)
    frame = pd.DataFrame({"q": np.arange(rows) // 8, "y": (days % 7 > 4) + (hours > 12)})
    at = pd.to_datetime(days, unit="D") + pd.to_timedelta(hours, unit="h")
    frame["day"], frame["at"] = at.normalize(), at.tz_localize("UTC")
    frame.loc[3, ["day", "at"]] = pd.NaT
    return frame


@pytest.mark.parametrize("ending", ["csv", "parquet", "text parquet"])
def test_files_are_scanned_as_they_are_loaded(tmp_path: Path, ending):
    frame = make_rows()
    file = tmp_path / f"rows.{ending[-7:].strip()}"
    if ending == "csv":
        frame.to_csv(file, index=False)
    else:
        if ending.startswith("text"):
            frame = frame.assign(day=frame["day"].dt.strftime("%Y-%m-%d"))
        frame.to_parquet(file)
    uses = {"qid": "q", "label": "y"}
    given = dict.fromkeys(("weight", "position", "protected", "doc_id", "features", "categories"))
    if ending == "parquet":
        scanned = scan_table(file, max_levels=256, **uses, **given)
    else:
        with pytest.warns(UserWarning, match=r"columns of the table: dates, by their text: day"):
            scanned = scan_table(file, max_levels=256, **uses, **given)
    assert scanned == Schema.infer(load_table(file), **uses)
    assert scanned.features == {"day": 1, "at": 2}
    assert scanned.dates == {"day": "naive", "at": "utc"}
    expected = read_table(make_rows(), scanned)
    for found in (read_table(file, scanned), convert_quietly(file, tmp_path / "store", **uses)):
        lists = [found[i]["features"].numpy() for i in range(len(found))]
        np.testing.assert_array_equal(np.concatenate(lists), expected.features)


def convert_quietly(file, out, **uses):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        convert(file, out, **uses)
    assert open_lists(out).schema.dates == {"day": "naive", "at": "utc"}
    return open_lists(out)


def test_a_text_that_turns_up_late_makes_a_category(tmp_path: Path):
    texts = ["2024-02-29"] * 40_000 + ["2024-02-29T10Z", "soon"]
    pq.write_table(table_of(texts, x=[1.0] * len(texts)), tmp_path / "rows.parquet")
    given = dict.fromkeys(
        ("label", "weight", "position", "protected", "doc_id", "features", "categories")
    )
    schema = scan_table(tmp_path / "rows.parquet", max_levels=256, qid="q", **given)
    assert schema.dates == {}
    assert [*schema.categories] == ["at"]
    pq.write_table(table_of(texts[:-1], x=[1.0] * (len(texts) - 1)), tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=r"row 40000, column 'at'.*time zone.*in row 0"):
        scan_table(tmp_path / "rows.parquet", max_levels=256, qid="q", **given)


def test_the_finder_stops_when_all_is_known():
    table = table_of([WHEN], shop=["a"], day=[WHEN.date()], text=["2024-02-29"])
    columns = [
        DateColumn(name, table.schema.field(name).type) for name in ("at", "shop", "day", "text")
    ]
    assert all(one.open for one in columns)
    assert scan(Frame.of(table), columns) == 1
    assert [one.name for one in columns if one.open] == ["day", "text"]


def test_a_store_gives_a_model_its_dates(tmp_path: Path):
    frame = make_rows()
    frame.to_parquet(tmp_path / "rows.parquet")
    convert(tmp_path / "rows.parquet", tmp_path / "store", qid="q", label="y")
    data = TableDataModule(tmp_path / "store", "q", "y", features=["at"], validation=0.2)
    data.setup("fit")
    assert data.schema is not None
    assert data.schema.dates == {"at": "utc"}
    other = TableDataModule(predict_path=tmp_path / "store")
    other.use_schema(Schema("q", steps={"at": Date("naive", hour=True)}))
    with pytest.raises(ValueError, match=r"'at' must be naive dates.*utc dates"):
        other.dataset("predict")
