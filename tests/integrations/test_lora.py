"""CrossEncoderLoss over an adapter of peft, as on the page on text rerankers."""

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from ltr.integrations import CrossEncoderLoss
from ltr.losses import LambdaLoss, SoftmaxLoss

from .conftest import corpus, save_model

peft = pytest.importorskip("peft", reason="peft is not installed: pip install peft")
sentence_transformers = pytest.importorskip("sentence_transformers")
from sentence_transformers.cross_encoder import CrossEncoder  # noqa: E402

PAGE = Path(__file__).parents[2] / "docs" / "text-rerankers.md"


@pytest.fixture
def adapted(tmp_path, monkeypatch):
    """The names that the page's code makes: a model with an adapter, and its loss."""
    monkeypatch.chdir(tmp_path)
    save_model(Path("microsoft/MiniLM-L12-H384-uncased"), dropout=0.3)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (code,) = [block for block in blocks if "peft" in block]
    names = {"CrossEncoder": CrossEncoder, "CrossEncoderLoss": CrossEncoderLoss}
    names |= {"SoftmaxLoss": SoftmaxLoss}
    torch.manual_seed(0)
    exec(code, names)
    return names


def given() -> tuple[list, list[Tensor]]:
    found = corpus(6)
    return [found["query"], found["documents"]], [torch.tensor(x) for x in found["labels"]]


def trainable(model: CrossEncoder) -> dict[str, Tensor]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def test_only_the_adapter_and_the_last_layer_are_trained(adapted):
    names = trainable(adapted["model"])
    assert all("lora_" in name or "classifier" in name for name in names)
    assert {name.rpartition(".")[2] for name in names if "classifier" in name} == {"weight", "bias"}
    assert len([name for name in names if "lora_" in name]) > 12


@pytest.mark.parametrize("loss", [SoftmaxLoss(), LambdaLoss()], ids=repr)
def test_cached_values_and_gradients_are_the_others(adapted, loss):
    model, found = adapted["model"].train(), []
    with torch.no_grad():  # a new adapter adds 0, and half of its gradients are 0
        for p in trainable(model).values():
            p.add_(torch.randn_like(p), alpha=0.1)
    for cached in (False, True):
        torch.manual_seed(1)
        model.zero_grad()
        value = CrossEncoderLoss(model, loss, 4, cached)(*given())
        value.backward()
        found.append((value.detach(), *[p.grad for p in trainable(model).values()]))
    plain, cached = found
    for a, b in zip(plain, cached, strict=True):
        assert torch.equal(a, b)
    assert all(grad.abs().max() > 0 for grad in plain[1:] if grad.ndim == 2)
    assert all(p.grad is None for p in model.parameters() if not p.requires_grad)


def test_the_adapter_learns_and_is_saved_alone(adapted, tmp_path):
    model, loss = adapted["model"].train(), adapted["loss"]
    frozen = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    optimizer = torch.optim.AdamW(trainable(model).values(), lr=1e-2)
    before = loss(*given()).item()
    for _ in range(30):
        optimizer.zero_grad()
        loss(*given()).backward()
        optimizer.step()
    assert loss(*given()).item() < before - 0.1
    assert all(torch.equal(frozen[name], dict(model.named_parameters())[name]) for name in frozen)
    model.save_pretrained(str(tmp_path / "adapter"))
    pairs = [("red cat", "red dog"), ("red cat", "cat runs")]
    again = CrossEncoder(str(tmp_path / "adapter"), device="cpu")
    assert again.predict(pairs) == pytest.approx(model.eval().predict(pairs), abs=1e-6)
    saved = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert all("lora_" in name or "classifier" in name for name in saved)
