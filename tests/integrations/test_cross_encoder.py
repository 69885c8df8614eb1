"""CrossEncoderLoss: values and gradients beside the library's, caching, training."""

import json
import math
import re
from typing import Any

import pytest
import torch
from pairwise import covering, named
from torch import Tensor, nn

from ltr.integrations import CrossEncoderLoss
from ltr.losses import (
    DeltaNDCG,
    ExposureParity,
    LambdaLoss,
    ListNet,
    NDCGLoss2,
    NDCGLoss2PP,
    Penalized,
    RankingLoss,
    RankNet,
    SoftmaxLoss,
    SoftNDCG,
)
from ltr.operators import SoftSort, Stochastic

from .conftest import corpus

sentence_transformers = pytest.importorskip("sentence_transformers")
from sentence_transformers.cross_encoder import (  # noqa: E402
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    losses,
)


@pytest.fixture(scope="module")
def model(model_path: str) -> CrossEncoder:
    return CrossEncoder(model_path, device="cpu")


@pytest.fixture(scope="module")
def dropout_model(dropout_path: str) -> CrossEncoder:
    return CrossEncoder(dropout_path, device="cpu").train()


def batch(lists: int = 6, seed: int = 0) -> tuple[list[list[Any]], list[Tensor]]:
    found = corpus(lists, seed)
    return [found["query"], found["documents"]], [torch.tensor(x) for x in found["labels"]]


def value_and_gradient(loss: nn.Module, *given: Any) -> tuple[float, Tensor]:
    """The loss and the gradient of all parameters, with the random numbers of one seed."""
    torch.manual_seed(1)
    loss.zero_grad()
    value = loss(*given)
    value.backward()
    gradients = [p.grad.flatten() for p in loss.parameters() if p.grad is not None]
    return value.item(), torch.cat(gradients)


def test_the_loss_is_that_of_the_scores_of_each_list(model):
    inputs, labels = batch()
    loss = SoftNDCG(top_k=3, mean="arithmetic")
    found = CrossEncoderLoss(model, loss)(inputs, labels).item()
    with torch.no_grad():
        each = [
            loss(
                torch.tensor(model.predict([(q, d) for d in docs], activation_fn=nn.Identity())), y
            )
            for q, docs, y in zip(*inputs, labels, strict=True)
        ]
    assert found == pytest.approx(torch.stack(each).mean().item(), abs=1e-6)


def test_list_net_has_the_gradient_of_the_librarys(model):
    # with a relevant document in each list; without one, the library's pulls scores together
    given = batch()
    ours, gradient = value_and_gradient(CrossEncoderLoss(model, ListNet()), *given)
    theirs, expected = value_and_gradient(losses.ListNetLoss(model), *given)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)
    # the library's loss has the entropy of softmax(labels) in it; its minimum is not 0
    p = [y.float().softmax(0) for y in given[1]]
    entropy = torch.stack([-(x * x.log()).sum() for x in p]).mean().item()
    assert ours == pytest.approx(theirs - entropy, abs=1e-5)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (RankNet(normalize=False, reduction="sum"), losses.NoWeightingScheme()),
        (
            LambdaLoss(DeltaNDCG(), normalize=False, reduction="sum"),
            losses.LambdaRankScheme(),
        ),
        (LambdaLoss(NDCGLoss2(), normalize=False, reduction="sum"), losses.NDCGLoss2Scheme()),
        (
            LambdaLoss(NDCGLoss2PP(), normalize=False, reduction="sum"),
            losses.NDCGLoss2PPScheme(),
        ),
    ],
    ids=lambda x: type(x).__name__,
)
def test_lambda_loss_is_the_librarys_but_for_a_factor(model, ours, theirs):
    # the library takes the mean over the pairs of the batch, in logarithms to base 2
    given = batch()
    pairs = sum(int((y[:, None] > y).sum()) for y in given[1])
    factor = 1 / (pairs * math.log(2))
    value, gradient = value_and_gradient(CrossEncoderLoss(model, ours), *given)
    expected, expected_gradient = value_and_gradient(losses.LambdaLoss(model, theirs), *given)
    assert value * factor == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(gradient * factor, expected_gradient, rtol=1e-4, atol=1e-6)


@covering(
    "loss, size",
    named(SoftmaxLoss(), LambdaLoss(), SoftNDCG(Stochastic(SoftSort(), samples=2))),
    named(1, 4, 100),
)
def test_cached_gradients_are_the_others_with_dropout(dropout_model, loss, size):
    given = batch()
    plain = value_and_gradient(CrossEncoderLoss(dropout_model, loss, size), *given)
    state = torch.get_rng_state()
    cached = value_and_gradient(CrossEncoderLoss(dropout_model, loss, size, cached=True), *given)
    assert cached[0] == plain[0]
    assert torch.equal(cached[1], plain[1])
    assert torch.equal(torch.get_rng_state(), state)  # what follows draws the same numbers, too
    assert plain[1].abs().max() > 0


def test_dropout_is_drawn_anew_in_each_step(dropout_model):
    inputs, labels = batch()
    loss = CrossEncoderLoss(dropout_model, SoftmaxLoss(), 4, cached=True)
    assert loss(inputs, labels).item() != loss(inputs, labels).item()


def test_two_cached_losses_before_a_backward_pass(dropout_model):
    # as with two data sets in one step: neither may change what the other computes again
    loss = CrossEncoderLoss(dropout_model, SoftmaxLoss(), 4, cached=True)
    first, second = batch(seed=1), batch(seed=2)
    torch.manual_seed(0)
    loss.zero_grad()
    (loss(*first) + loss(*second)).backward()
    together = torch.cat([p.grad.flatten() for p in loss.parameters() if p.grad is not None])
    loss.cached = False
    torch.manual_seed(0)
    loss.zero_grad()
    (loss(*first) + loss(*second)).backward()
    expected = torch.cat([p.grad.flatten() for p in loss.parameters() if p.grad is not None])
    torch.testing.assert_close(together, expected, rtol=1e-4, atol=1e-7)


def gradient_of_process(rank: int, processes: int, path: str, folder: str) -> None:
    """Write the gradient of two steps of one process of DistributedDataParallel."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=processes
    )
    model = CrossEncoder(path, device="cpu").train()
    loss = CrossEncoderLoss(model, SoftmaxLoss(), 4, cached=True)
    loss.model = nn.parallel.DistributedDataParallel(model)
    loss.model.preprocess = model.preprocess  # as the library's trainer does
    for _ in range(2):
        torch.manual_seed(rank)
        loss.zero_grad()
        loss(*batch(seed=rank)).backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    torch.save(gradient, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.slow  # two fresh processes import transformers
def test_cached_gradients_of_two_processes_are_the_mean(dropout_path, dropout_model, tmp_path):
    torch.multiprocessing.spawn(gradient_of_process, (2, dropout_path, str(tmp_path)), nprocs=2)
    loss, expected = CrossEncoderLoss(dropout_model, SoftmaxLoss(), 4), []
    for rank in range(2):
        torch.manual_seed(rank)
        loss.zero_grad()
        loss(*batch(seed=rank)).backward()
        gradients = [p.grad.flatten() for p in loss.parameters() if p.grad is not None]
        expected.append(torch.cat(gradients))
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt")
        torch.testing.assert_close(found, sum(expected) / 2, rtol=1e-5, atol=1e-8)


class Counting(nn.Module):
    """Counts the bytes that the graph of a block of code saves."""

    def __init__(self, skipped: nn.Module):
        super().__init__()
        self.skipped = {p.data_ptr() for p in skipped.parameters()}
        self.held = 0

    def __enter__(self):
        def pack(x: Tensor) -> Tensor:
            self.held += 0 if x.data_ptr() in self.skipped else x.numel() * x.element_size()
            return x

        self.hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x)
        self.hooks.__enter__()
        return self

    def __exit__(self, *error: object):
        self.hooks.__exit__(*error)


def held(loss: CrossEncoderLoss, documents: int) -> int:
    given = [["red cat"], [["red dog runs"] * documents]], [torch.arange(documents) % 3]
    with Counting(loss.model) as counting:
        loss(*given)
    return counting.held


def test_a_hundred_cached_documents_hold_less_than_sixteen(model):
    plain = held(CrossEncoderLoss(model, SoftmaxLoss(), 16), 16)
    assert held(CrossEncoderLoss(model, SoftmaxLoss(), 16), 100) > 5 * plain
    assert held(CrossEncoderLoss(model, SoftmaxLoss(), 16, cached=True), 100) < plain / 10


def test_as_many_documents_are_scored_at_a_time_as_the_library_does(model, monkeypatch):
    sizes: list[int] = []
    forward = model.forward
    monkeypatch.setattr(model, "forward", lambda x: sizes.append(len(x["input_ids"])) or forward(x))
    inputs, labels = batch(lists=4)  # of 2, 3, 4 and 5 documents
    CrossEncoderLoss(model, SoftmaxLoss())(inputs, labels)
    CrossEncoderLoss(model, SoftmaxLoss(), 10)(inputs, labels)
    assert sizes == [4, 4, 4, 2, 10, 4]


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("labels", [[[0, 0, 0], [2]], [[0, 0, 0], []], [[1, 1, 1], [0]]], ids=str)
def test_lists_without_a_loss_have_a_gradient_of_zero(model, labels, cached):
    documents = [["red", "red dog", "cat"], ["dog"] * len(labels[1])]
    loss = CrossEncoderLoss(model, LambdaLoss(), 2, cached)
    given = [["red", "dog"], documents], [torch.tensor(y) for y in labels]
    value, gradient = value_and_gradient(loss, *given)
    assert value == 0
    assert not gradient.any()


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_under_autocast(model, dtype, cached):
    given = batch()
    expected, _ = value_and_gradient(CrossEncoderLoss(model, SoftNDCG(), 4), *given)
    loss = CrossEncoderLoss(model, SoftNDCG(), 4, cached)
    seen: list[torch.dtype] = []
    loss.activation_fn.register_forward_pre_hook(lambda _, x: seen.append(x[0].dtype))
    loss.zero_grad()
    with torch.autocast("cpu", dtype=dtype):
        value = loss(*given)
    value.backward()  # outside of autocast, as trainers do: the second pass must be in it
    assert seen == [torch.float32]
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(expected, abs=0.02)
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    assert gradient.isfinite().all()
    assert gradient.abs().max() > 0


def test_cached_gradients_under_autocast_are_the_others(dropout_model):
    found = []
    for cached in (False, True):
        loss = CrossEncoderLoss(dropout_model, SoftmaxLoss(), 4, cached)
        loss.zero_grad()
        torch.manual_seed(0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = loss(*batch())
        value.backward()
        found.append(torch.cat([p.grad.flatten() for p in loss.parameters() if p.grad is not None]))
    assert torch.equal(*found)


def test_a_model_in_bfloat16(model_path):
    half = CrossEncoder(model_path, device="cpu", model_kwargs={"dtype": torch.bfloat16})
    value = CrossEncoderLoss(half, SoftNDCG(), cached=True)(*batch())
    value.backward()
    assert value.dtype == torch.float32
    assert all(p.grad.isfinite().all() for p in half.parameters() if p.grad is not None)


def test_the_activation_function_comes_before_the_loss(model):
    class Scores(RankingLoss):
        def per_list(self, scores, labels, mask, weights):
            return scores.amax(-1)

    inputs, labels = [["red"], [["red dog"]]], [torch.tensor([1])]
    logit = CrossEncoderLoss(model, Scores())(inputs, labels)
    sigmoid = CrossEncoderLoss(model, Scores(), activation_fn=nn.Sigmoid())(inputs, labels)
    assert sigmoid.item() == pytest.approx(logit.sigmoid().item())


def test_noise_is_left_out_in_evaluation(model):
    loss = CrossEncoderLoss(model, SoftNDCG(Stochastic(SoftSort())))
    model.eval()
    values = {loss(*batch()).item() for _ in range(3)}
    model.train()
    noisy = {loss(*batch()).item() for _ in range(3)}
    assert len(values) == 1
    assert len(noisy) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": nn.MSELoss()}, r"^loss must be a RankingLoss.*MSELoss"),
        ({"loss": SoftmaxLoss(reduction="none")}, r"^loss\.reduction .*'none'"),
        ({"loss": Penalized(SoftmaxLoss(), ExposureParity())}, r"^loss .*protected"),
        ({"mini_batch_size": 0}, r"^mini_batch_size .*0"),
        ({"cached": 1}, r"^cached .*1"),
        ({"activation_fn": "sigmoid"}, r"^activation_fn must be a module or None, got 'sigmoid'"),
        ({"activation_fn": nn.Sigmoid}, r"^activation_fn must be a module or None, got <class"),
    ],
)
def test_wrong_options(model, options, message):
    with pytest.raises(ValueError, match=message):
        CrossEncoderLoss(model, **{"loss": SoftmaxLoss(), **options})


def test_a_model_or_loss_of_another_class_is_named(model):
    with pytest.raises(ValueError, match=r"^model must be a CrossEncoder, got a Linear$"):
        CrossEncoderLoss(nn.Linear(2, 1), SoftmaxLoss())
    with pytest.raises(ValueError, match=r"^loss must be a RankingLoss, got a CrossEncoderLoss$"):
        CrossEncoderLoss(model, CrossEncoderLoss(model, SoftmaxLoss()))  # not a page of its modules
    with pytest.raises(
        ValueError, match=r"^loss must be a RankingLoss, got the class SoftmaxLoss$"
    ):
        CrossEncoderLoss(model, SoftmaxLoss)


def test_a_classifier_of_several_classes_is_refused(model_path):
    several = CrossEncoder(
        model_path, num_labels=3, device="cpu", model_kwargs={"ignore_mismatched_sizes": True}
    )
    with pytest.raises(ValueError, match=r"^model must have one output label, got 3"):
        CrossEncoderLoss(several, SoftmaxLoss())


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (
            [["a"], [["b"]], [["c"]]],
            [[1]],
            r"^inputs must be two col.*got 3: choose.*select",
        ),
        ([["a"], [["b", None]]], [[1, 0]], r"^documents must be texts, got None for the query 'a'"),
        ([[2], [["b"]]], [[1]], r"^query must be texts, got 2"),
        ([[["b"]], ["a"]], [[1]], r"^the column of queries must stand before that of documents"),
        ([["a"], ["b"]], [[1]], r"^documents must be a list of texts.*'b'"),
        (
            [["a"], [["b"]]],
            [[1, 2]],
            r"^labels must have one value for each document, got 2 .* 1 .*'a'",
        ),
        ([["a"], [["b"]]], [], r"^inputs .*1 queries, 1 lists and 0 labels"),
        ([["a"], [[]]], [[]], r"^documents must not all be empty, got 1"),
        ([["a"], [["b"]]], [[-1]], r"^labels must be >= 0, got -1"),
        ([["a"], [["b"]]], [1], r"^labels must be a tensor \(documents,\), got tensor\(1\)"),
        ([["a"], [None]], [[1]], r"^documents must be a list of texts .* got None"),
    ],
)
def test_wrong_batches(model, inputs, labels, message):
    with pytest.raises(ValueError, match=message):
        CrossEncoderLoss(model, SoftmaxLoss())(inputs, [torch.tensor(y) for y in labels])


def test_one_label_for_each_query_is_refused(model):
    with pytest.raises(ValueError, match=r"^labels must be a list of numbers"):
        CrossEncoderLoss(model, SoftmaxLoss())([["a"], [["b"]]], torch.tensor([1]))


def test_the_card_has_the_options_and_the_references(model):
    loss = CrossEncoderLoss(model, SoftNDCG(SoftSort(0.2)), 8, cached=True)
    config = json.loads(json.dumps(loss.get_config_dict()))
    operator = config["loss"]["init_args"]["operator"]
    assert operator["class_path"] == "ltr.operators.SoftSort"
    assert operator["init_args"]["temperature"] == 0.2
    assert (config["mini_batch_size"], config["cached"]) == (8, True)
    assert config["activation_fn"].endswith("Identity")
    assert re.search(
        r"^@misc\{ltr-torch,\n  title = \{SoftNDCG of ltr-torch\},", loss.citation.strip()
    )
    assert "Qin, Liu and Li" in loss.citation
    assert "Prillo and Eisenschlos" in loss.citation


def test_a_loss_without_a_configuration_is_text_in_the_card(model):
    loss = CrossEncoderLoss(model, SoftNDCG(gain=lambda labels: labels))
    assert loss.get_config_dict()["loss"].startswith("SoftNDCG(")


def test_training_learns_the_toy_corpus_and_writes_its_card(model_path, tmp_path):
    from datasets import Dataset
    from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator

    model = CrossEncoder(model_path, device="cpu")
    data = Dataset.from_dict(corpus(16))
    samples = [
        {
            "query": row["query"],
            "positive": [d for d, y in zip(row["documents"], row["labels"], strict=True) if y],
            "negative": [d for d, y in zip(row["documents"], row["labels"], strict=True) if not y],
        }
        for row in data
    ]
    arguments = CrossEncoderTrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=25,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        learning_rate=5e-3,
        bf16=True,
        use_cpu=True,
        eval_strategy="steps",
        eval_steps=25,  # of 50
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    evaluator = CrossEncoderRerankingEvaluator(samples, write_csv=False)
    before = evaluator(model)["ndcg@10"]
    trainer = CrossEncoderTrainer(
        model=model,
        args=arguments,
        train_dataset=data,
        eval_dataset=data,
        loss=lambda model: CrossEncoderLoss(model, SoftmaxLoss(), 16, cached=True),
        evaluator=evaluator,
    )
    trainer.train()
    after = evaluator(model)["ndcg@10"]
    assert before < 0.9
    assert after > 0.99
    trainer.save_model(str(tmp_path / "final"))
    card = (tmp_path / "final" / "README.md").read_text()
    assert "ltr.losses.SoftmaxLoss" in card
    assert "loss:CrossEncoderLoss" in card
    assert "Bruch, Wang" in card
