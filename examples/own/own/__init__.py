"""What a package of one's own adds to regard: its tasks, declared where nothing is loaded; see pyproject.toml."""

from regard.tasks.registry import Entry

DIGITS = Entry(
    "digits",
    "reads digits",
    job="own.digits_job:DigitsJob",
    reader="own.digits_job:Digits",
    loader="own.digits:Reader",
    scorer="own.digits:score",
    look="own.digits:look",
    scene="regard.tasks.looks.scenes:ImageScene",
    units="pictures",
    measures="Digits: accuracy and F1, also per digit.",
    sample="digit.png",
)
KARATE = Entry(
    "karate",
    "labels nodes",
    job="own.karate_job:ClubJob",
    reader="own.karate_job:Club",
    loader="own.karate:Labeller",
    scorer="own.karate:score",
    look="own.karate:look",
    scene="regard.tasks.looks.scenes:GraphScene",
    units="nodes",
    measures="Nodes of a graph: accuracy and F1, also per label.",
    sample="5",
    looked_at="",
)
