"""A synthetic dataset of Chinese–English travel sentences, by a grammar small enough to learn in minutes.

A sentence is a pattern with its gaps filled. Each Chinese sentence has exactly one English one: a translation is right
or wrong.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache

from regard.core import RegardError

Pair = tuple[str, str]

# Chinese, English; a second English word is the plural
GAPS = {
    "city": (
        "西安 xi'an|北京 beijing|上海 shanghai|广州 guangzhou|深圳 shenzhen|成都 chengdu|重庆 chongqing|"
        "杭州 hangzhou|南京 nanjing|苏州 suzhou|武汉 wuhan|长沙 changsha|厦门 xiamen|青岛 qingdao|大连 dalian|"
        "桂林 guilin|昆明 kunming|大理 dali|丽江 lijiang|拉萨 lhasa|敦煌 dunhuang|洛阳 luoyang|开封 kaifeng|"
        "哈尔滨 harbin"
    ),
    "sight": (
        "长城 the great wall|故宫 the forbidden city|兵马俑 the terracotta army|天坛 the temple of heaven|"
        "颐和园 the summer palace|西湖 west lake|外滩 the bund|大雁塔 the wild goose pagoda|钟楼 the bell tower|"
        "鼓楼 the drum tower|布达拉宫 the potala palace|莫高窟 the mogao caves|黄山 mount huang|泰山 mount tai|"
        "华山 mount hua|都江堰 dujiangyan|熊猫基地 the panda base|古城墙 the old city wall"
    ),
    "place": (
        "火车站 the train station|机场 the airport|地铁站 the subway station|公共汽车站 the bus stop|银行 the bank|"
        "医院 the hospital|药店 the pharmacy|邮局 the post office|博物馆 the museum|图书馆 the library|"
        "超市 the supermarket|洗手间 the restroom|警察局 the police station|大使馆 the embassy|书店 the bookstore|"
        "电影院 the cinema|公园 the park|市场 the market|酒店 the hotel|饭馆 the restaurant"
    ),
    "dish": (
        "饺子 dumplings|面条 noodles|米饭 rice|烤鸭 roast duck|火锅 hot pot|包子 steamed buns|豆腐 tofu|"
        "羊肉泡馍 mutton soup with bread|肉夹馍 meat sandwiches|凉皮 cold noodles|宫保鸡丁 kung pao chicken|"
        "炒饭 fried rice|鱼 fish|汤 soup|蔬菜 vegetables|水果 fruit"
    ),
    "drink": "茶 tea|咖啡 coffee|啤酒 beer|水 water|果汁 juice|牛奶 milk|可乐 cola|豆浆 soy milk",
    "thing": (
        "地图 map/maps|雨伞 umbrella/umbrellas|帽子 hat/hats|杯子 cup/cups|手表 watch/watches|书包 backpack/backpacks|"
        "电话卡 phone card/phone cards|充电器 charger/chargers|毛巾 towel/towels|扇子 fan/fans|围巾 scarf/scarves|"
        "钱包 wallet/wallets"
    ),
    "number": "两 two|三 three|四 four|五 five|六 six|七 seven|八 eight|九 nine|十 ten",
    "hour": ("一 one|两 two|三 three|四 four|五 five|六 six|七 seven|八 eight|九 nine|十 ten|十一 eleven|十二 twelve"),
    "day": (
        "今天 today|明天 tomorrow|后天 the day after tomorrow|星期一 on monday|星期二 on tuesday|星期三 on wednesday|"
        "星期四 on thursday|星期五 on friday|星期六 on saturday|星期天 on sunday"
    ),
    "part": "早上 in the morning|下午 in the afternoon|晚上 in the evening",
    "ride": "火车 train|飞机 plane|汽车 bus|高铁 high-speed train|船 boat|出租车 taxi",
    "price": (
        "十 ten|二十 twenty|三十 thirty|五十 fifty|八十 eighty|一百 one hundred|两百 two hundred|五百 five hundred|"
        "一千 one thousand"
    ),
    "colour": "红色 red|黑色 black|白色 white|蓝色 blue|绿色 green|黄色 yellow",
    "who": "我 i|我们 we|他们 they",
}

# a gap with a 2 is filled with another word than its namesake; one with a plus in the plural
PATTERNS = (
    "介绍一下{city} = introduce {city}",
    "请介绍一下{sight} = please introduce {sight}",
    "你去过{city}吗 = have you been to {city}",
    "你喜欢{city}的{dish}吗 = do you like the {dish} of {city}",
    "{city}的天气怎么样 = how is the weather in {city}",
    "{city}离{city2}远吗 = is {city} far from {city2}",
    "从{city}到{city2}有{ride}吗 = is there a {ride} from {city} to {city2}",
    "从{city}到{city2}要多长时间 = how long does it take from {city} to {city2}",
    "坐{ride}去{city}要多少钱 = how much is it to go to {city} by {ride}",
    "{who}坐{ride}从{city}去{city2} = {who} go from {city} to {city2} by {ride}",
    "{who}想去{sight} = {who} want to go to {sight}",
    "{who}想{day}去{city} = {who} want to go to {city} {day}",
    "{who}{day}{part}去{sight} = {who} go to {sight} {day} {part}",
    "{who}想坐{ride}去{city} = {who} want to go to {city} by {ride}",
    "请给我一张去{city}的票 = please give me one ticket to {city}",
    "请给我{number}张{day}去{city}的票 = please give me {number} tickets to {city} {day}",
    "请问{place}在哪里 = excuse me , where is {place}",
    "去{place}怎么走 = how do i get to {place}",
    "{place}在{place2}旁边 = {place} is next to {place2}",
    "{place}在{place2}对面 = {place} is across from {place2}",
    "从{place}到{sight}怎么走 = how do i get from {place} to {sight}",
    "{sight}几点开门 = what time does {sight} open",
    "{place}{part}{hour}点关门 = {place} closes at {hour} {part}",
    "去{city}的{ride}{part}{hour}点出发 = the {ride} to {city} leaves at {hour} {part}",
    "{who}想吃{dish} = {who} want to eat {dish}",
    "{who}想吃{dish}喝{drink} = {who} want to eat {dish} and drink {drink}",
    "请给我{number}杯{drink} = please give me {number} cups of {drink}",
    "{dish}多少钱 = how much for the {dish}",
    "这个{colour}的{thing}多少钱 = how much is this {colour} {thing}",
    "那个{colour}的{thing}{price}块钱 = that {colour} {thing} is {price} yuan",
    "{who}要买{number}个{colour}的{thing} = {who} want to buy {number} {colour} {thing+}",
    "太贵了，{price}块可以吗 = that is too expensive , is {price} yuan all right",
    "{who}要住{number}天 = {who} will stay for {number} days",
    "{who}要订{day}的房间 = {who} want to book a room {day}",
    "{who}在{city}的{place}等你 = {who} wait for you at {place} in {city}",
    "{who}{day}{part}{hour}点到{city} = {who} arrive in {city} {day} at {hour} {part}",
    "{sight}的门票是{price}块 = the ticket for {sight} is {price} yuan",
    "{who}的{thing}丢了 = {who} lost the {thing}",
)
_GAP = re.compile(r"\{([a-z]+2?)\+?\}")


@lru_cache
def list_pairs() -> tuple[Pair, ...]:
    """All sentence pairs of the phrasebook, (Chinese, English).

    >>> len(list_pairs()), list_pairs()[0]
    (57870, ('介绍一下西安', "introduce xi'an"))
    """
    return tuple(pair for pattern in PATTERNS for pair in _fill(pattern))


def draw_pairs(count: int, seed: int = 0) -> list[Pair]:
    """A random sample of sentence pairs, without repeats, each pattern as likely as another; seeded.

    >>> draw_pairs(2) == draw_pairs(2)
    True
    """
    if not 0 <= count <= len(list_pairs()):
        raise RegardError(f"count must lie in [0, {len(list_pairs())}], the sentences of the phrasebook, got {count}.")
    return _take_turns([list(_fill(pattern)) for pattern in PATTERNS], random.Random(seed))[:count]


def split_pairs(held_out: float = 0.05, seed: int = 0, *, least: int = 0) -> tuple[list[Pair], list[Pair]]:
    """Sentence pairs for training and held-out ones, both with all patterns mixed.

    >>> train, test = split_pairs()
    >>> len(set(train) & set(test)), len(train) + len(test)
    (0, 57870)

    Combinations of words are held out, never words: what has one gap is always there to learn. Of a pattern with fewer
    than `least` sentences to learn from, these are repeated until there are as many.
    """
    if not 0 <= held_out < 1:
        raise RegardError(f"held_out must lie in [0, 1), got {held_out}.")
    parts: tuple[list[list[Pair]], list[list[Pair]]] = [], []
    for pattern in PATTERNS:
        is_free = len(_list_gaps(pattern)) > 1
        groups: tuple[list[Pair], list[Pair]] = [], []
        for pair in _fill(pattern):
            groups[is_free and _chance(pair[0], seed) < held_out].append(pair)
        groups[0][:] = itertools.islice(itertools.cycle(groups[0]), max(least, len(groups[0])))
        for part, group in zip(parts, groups, strict=True):
            part.append(group)
    train, test = (_take_turns(part, random.Random(seed)) for part in parts)
    return train, test


def list_choices(pattern: str) -> Iterator[dict[str, tuple[str, str, str]]]:
    """All ways to fill the gaps of a pattern, sentence by sentence: Chinese, English and its plural.

    >>> next(list_choices(PATTERNS[0]))
    {'city': ('西安', "xi'an", "xi'an")}
    """
    gaps = _list_gaps(pattern)
    words = [_list_words(gap.rstrip("2")) for gap in gaps]
    for choice in itertools.product(*words):
        filled = dict(zip(gaps, choice, strict=True))
        if not any(gap.endswith("2") and filled[gap] == filled[gap[:-1]] for gap in gaps):
            yield filled


@cache
def _fill(pattern: str) -> tuple[Pair, ...]:
    """All sentences of a pattern."""
    source, target = pattern.split(" = ")
    found = []
    for filled in list_choices(pattern):
        forms = {gap: english for gap, (_, english, _) in filled.items()}
        plurals = {f"{gap}+": plural for gap, (_, _, plural) in filled.items()}
        chinese = {gap: words[0] for gap, words in filled.items()}
        found.append((_put(source, chinese), _put(target, forms | plurals)))
    return tuple(found)


def _put(text: str, words: dict[str, str]) -> str:
    for gap, word in words.items():
        text = text.replace(f"{{{gap}}}", word)
    return text


def _list_gaps(pattern: str) -> list[str]:
    return _GAP.findall(pattern.split(" = ")[0])


@lru_cache
def _list_words(gap: str) -> list[tuple[str, str, str]]:
    """Chinese, English and its plural, for each word that fills the gap."""
    found = []
    for entry in GAPS[gap].split("|"):
        chinese, english = entry.split(" ", 1)
        one, _, many = english.partition("/")
        found.append((chinese, one, many or one))
    return found


def _chance(text: str, seed: int) -> float:
    """A pseudo-random number in [0, 1), by a hash of the text and the seed."""
    return int.from_bytes(hashlib.sha256(f"{seed} {text}".encode()).digest()[:8]) / 2**64


def _take_turns(groups: Sequence[list[Pair]], chance: random.Random) -> list[Pair]:
    """All pairs, shuffled within their group, the groups taking turns (round robin)."""
    for group in groups:
        chance.shuffle(group)
    rounds = itertools.zip_longest(*groups)
    return [pair for row in rounds for pair in row if pair is not None]
