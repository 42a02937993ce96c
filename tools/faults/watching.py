"""Faults of watching: steps that are joined, checks that let everything pass, what is left behind in a model."""

from tools.faults.fault import Fault

JOIN, CHECK = "watching/join.py", "watching/check.py"

WATCHING = [
    Fault(
        JOIN,
        "torch.cat([look.chosen + start for look, start in zip(looks, starts, strict=True)])",
        "torch.cat([look.chosen for look in looks])",
        "chosen rows of later steps have the numbers of the first",
    ),
    Fault(
        JOIN,
        "for look in looks]).sum(0)",
        "for look in looks]).mean(0)",
        "what a key received is a mean over steps",
    ),
    Fault(
        CHECK,
        "groups = torch.tensor([h // served for h in tile.h], device=s.device)",
        "groups = torch.tensor([h % max(s.g, 1) for h in tile.h], device=s.device)",
        "grouped heads are checked against the keys of others",
    ),
    Fault(
        CHECK,
        "(self.ratio <= MOST and self.shown <= 1.0)",
        "self.ratio <= MOST",
        "a look that says something else passes its check",
    ),
    Fault(
        "watching/record.py",
        "if -n <= row < n]",
        "if 0 <= row < n]",
        "rows counted from the end are left out",
    ),
    Fault(
        "watching/terms.py",
        "score = Dot(None if scaling is None else float(scaling), cap)",
        "score = Dot(None, cap)",
        "a model's own scaling is not read",
    ),
    Fault(
        "watching/steps.py",
        "    after = after[..., :m, :]\n",
        "    after = after[..., -m:, :]\n",
        "no step of decoding goes on from the one before",
    ),
    Fault(
        "watching/files.py",
        "        write_whole(path, content)\n",
        "        path.write_bytes(content)\n",
        "looks are written over the old file",
    ),
    Fault(
        "watching/hugging.py",
        "        for handle in handles:\n            handle.remove()\n",
        "",
        "hooks stay in the model when the watch is over",
    ),
]
