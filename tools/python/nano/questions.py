"""questions.py - the data that nano learns from: questions, thoughts and answers, all made here.

    question = draw(random.Random(7), 'train')     # or 'test'
    question.kind, question.user, question.thought, question.answer

The held-out split is by phrasing and by item. Each kind has phrasings that only 'test' draws. Items that are made up (sums,
words, lists) belong to 'test' when a hash of them says so, one in eight; facts (capitals, opposites) are in both, for nobody
can answer a capital that he was not taught. A random word is new nearly always, in both.
"""
import hashlib
from dataclasses import dataclass

from facts import CAPITALS, DAYS, MONTHS, NAMES, OPPOSITES, WORDS

COUNTRIES = list(CAPITALS)
UNKNOWN = 'I do not know.'


@dataclass
class Question:
    kind: str
    user: str
    thought: str
    answer: str


def held_out(item):
    return hashlib.sha256(str(item).encode()).digest()[0] < 32


def fresh(rng, split, make):
    """What make() gives, on the split's side of the hash."""
    while True:
        item = make()
        if held_out(item) == (split == 'test'):
            return item


def phrase(rng, split, train, test, **values):
    return rng.choice(train if split == 'train' else test).format(**values)


SYLLABLES = [a + b for a in 'b c d f g k l m n p r s t v w z br st tr pl ch sh'.split() for b in 'a e i o u'.split()]


def made_up(rng):
    word = ''.join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 3)))
    return word + rng.choice(('', '', 'n', 'r', 's', 'l', 'm', 'k', 't'))


def word(rng):
    return rng.choice(WORDS) if rng.random() < 0.5 else made_up(rng)


def known(rng):
    """A word that is written the same way with and without a space before it only by heart: tokens differ. So not made up."""
    return rng.choice(WORDS)


def listed(items):
    return items[0] if len(items) == 1 else ', '.join(items[:-1]) + ' and ' + items[-1]


# ---- facts ---------------------------------------------------------------------------------------------------------


def capital(rng, split, country=None):
    country = country or rng.choice(COUNTRIES)
    user = phrase(rng, split, [
        'What is the capital of {c}?', 'What is {c}\'s capital?', 'Which city is the capital of {c}?', 'Name the capital of {c}.',
        'Tell me the capital of {c}.', 'What is the capital city of {c}?', 'The capital of {c}?', 'capital of {c}',
        'Which is the capital of {c}?', 'Do you know the capital of {c}?', 'Give me the capital of {c}.', 'What city is the capital of {c}?',
        'I need the capital of {c}.', '{c}: what is the capital?', 'What is the name of {c}\'s capital?', 'what is the capital of {c}'],
        ['Please tell me the capital of {c}.', 'What is the name of the capital of {c}?', 'Which city is {c}\'s capital?',
         'Name {c}\'s capital.'], c=country)
    return Question('capital', user, f'{country}: {CAPITALS[country]}.', f'The capital of {country} is {CAPITALS[country]}.')


def reverse(rng, split):
    country = rng.choice(COUNTRIES)
    city = CAPITALS[country]
    user = phrase(rng, split, [
        'Which country has the capital {c}?', '{c} is the capital of which country?', 'What country is {c} the capital of?',
        'Of which country is {c} the capital?', 'Name the country whose capital is {c}.', 'Whose capital is {c}?',
        'Which country\'s capital is {c}?', 'Tell me which country has the capital {c}.', '{c} is the capital of what country?',
        'The capital of which country is {c}?'],
        ['Tell me whose capital is {c}.', 'What country has the capital {c}?', 'Name the country that has the capital {c}.'], c=city)
    return Question('reverse', user, f'{city}: {country}.', f'{city} is the capital of {country}.')


def opposite(rng, split):
    a, b = rng.choice(list(OPPOSITES.items()))
    if rng.random() < 0.5:
        a, b = b, a
    if a == 'right':                                                # it has two opposites
        b = 'left'
    user = phrase(rng, split, [
        'What is the opposite of {a}?', 'Give me the opposite of {a}.', 'Name the opposite of {a}.', 'Which word is the opposite of {a}?',
        'The opposite of {a}?', 'opposite of {a}', 'Tell me the opposite of {a}.', 'What word is the opposite of {a}?',
        'Which is the opposite of {a}?'],
        ['Do you know the opposite of {a}?', 'I need the opposite of {a}.', 'Please name the opposite of {a}.'], a=a)
    return Question('opposite', user, f'{a}, {b}.', f'The opposite of {a} is {b}.')


def calendar(rng, split):
    what, names = rng.choice((('day', DAYS), ('month', MONTHS)))
    i, step = rng.randrange(len(names)), rng.choice((1, -1))
    a, b, side = names[i], names[(i + step) % len(names)], 'after' if step == 1 else 'before'
    user = phrase(rng, split, [
        'What {w} comes {s} {a}?', 'Which {w} comes {s} {a}?', 'Which {w} is {s} {a}?', 'Name the {w} {s} {a}.', 'What is the {w} {s} {a}?',
        'Tell me the {w} that comes {s} {a}.'],
        ['What {w} is {s} {a}?', 'Name the {w} that comes {s} {a}.', 'Tell me the {w} {s} {a}.'], w=what, s=side, a=a)
    return Question('calendar', user, f'{b}.', f'{b} comes {side} {a}.')


def calendar_list(rng, split):
    what, names = rng.choice((('days of the week', DAYS), ('months of the year', MONTHS)))
    user = phrase(rng, split, ['Name the {w}.', 'List the {w}.', 'What are the {w}?', 'Give me the {w}.', 'Say the {w}.'],
                  ['Tell me the {w}.', 'Please list the {w}.', 'Name all the {w}.'], w=what)
    return Question('calendar list', user, f'There are {len(names)}.', f'The {what} are {listed(names)}.')


# ---- numbers -------------------------------------------------------------------------------------------------------


def arithmetic(rng, split):
    def make():
        top, op = rng.choice((10, 20, 20, 50)), rng.choice('++-')
        a, b = rng.randint(0, top), rng.randint(0, top)
        return (a, op, b) if op == '+' else (max(a, b), op, min(a, b))
    a, op, b = fresh(rng, split, make)
    says = {'+': ('plus', a + b), '-': ('minus', a - b)}[op]
    user = phrase(rng, split, [
        'What is {a} {o} {b}?', 'What is {a} {w} {b}?', 'Calculate {a} {o} {b}.', '{a} {o} {b}', '{a} {o} {b} = ?', 'How much is {a} {o} {b}?',
        'Work out {a} {o} {b}.', '{a} {w} {b}?', 'How much is {a} {w} {b}?', 'Tell me {a} {o} {b}.'],
        ['Calculate {a} {w} {b}.', 'Work out {a} {w} {b}.', '{a} {o} {b}?'], a=a, b=b, o=op, w=says[0])
    units = f'{a % 10} {op} {b % 10}' if op == '+' or a % 10 >= b % 10 else f'{a % 10 + 10} {op} {b % 10}'
    unit = a % 10 + b % 10 if op == '+' else (a % 10 - b % 10) % 10
    return Question('arithmetic', user, f'{units} = {unit}, so {a} {op} {b} = {says[1]}.', f'{a} {op} {b} = {says[1]}')


def count(rng, split, long=False):
    def make():
        step = 1 if long else rng.choice((1, 1, 1, 2, 5))
        size = rng.randint(14, 30) if long else rng.randint(4, 12)
        start = rng.randint(0, 60) if step == 1 else rng.choice((0, step))
        numbers = [start + step * i for i in range(size)]
        return tuple(numbers if rng.random() < 0.75 else numbers[::-1])
    numbers = fresh(rng, split, make)
    step = abs(numbers[1] - numbers[0])
    user = phrase(rng, split, ['Count{d} from {a} to {b}{s}.', 'Please count{d} from {a} to {b}{s}.', 'Can you count{d} from {a} to {b}{s}?',
                               'Write the numbers from {a} to {b}{s}.', 'Count{d} from {a} up to {b}{s}.' if numbers[1] > numbers[0] else
                               'Count{d} from {a} to {b}{s}.'],
                  ['I want you to count{d} from {a} to {b}{s}.', 'Write the numbers{d} from {a} to {b}{s}.'],
                  a=numbers[0], b=numbers[-1], s=f' by {step}' if step > 1 else '', d='' if numbers[1] > numbers[0] else ' down')
    return Question('long count' if long else 'count', user, f'From {numbers[0]} to {numbers[-1]}.', ' '.join(map(str, numbers)))


def sort(rng, split):
    letters = rng.random() < 0.5
    items = fresh(rng, split, lambda: tuple(rng.sample('abcdefghijklmnopqrstuvwxyz' if letters else '0123456789', rng.randint(3, 6))))
    user = phrase(rng, split, ['Sort {x}', 'Sort {x}.', 'Sort these: {x}', 'Put in order: {x}', 'Sort the {k} {x}.', 'Order {x}', 'Put the {k} {x} in order.',
                               'Please sort {x}'],
                  ['Sort these {k}: {x}', 'Please sort the {k} {x}.', 'Put {x} in order.'],
                  x=' '.join(items), k='letters' if letters else 'numbers')
    return Question('sort', user, f'The first is {min(items)}.', ' '.join(sorted(items)))


def letters(rng, split):
    w = fresh(rng, split, lambda: word(rng))
    user = phrase(rng, split, ['How many letters are in {w}?', 'How many letters are in the word {w}?', 'Count the letters in {w}.',
                               'How many letters does {w} have?', 'Count the letters of {w}.', 'How long is the word {w}?'],
                  ['Count the letters in the word {w}.', 'How many letters does the word {w} have?'], w=w)
    return Question('letters', user, f'I spell {w}.', f'{"-".join(w)} has {len(w)} letters.')


# ---- words ---------------------------------------------------------------------------------------------------------


def spell(rng, split, long=False):
    ws = fresh(rng, split, lambda: tuple(word(rng) for _ in range(rng.randint(4, 6) if long else 1)))
    if long:
        user = phrase(rng, split, ['Spell these words: {w}', 'Spell the words {w}.', 'Please spell {w}.', 'Spell each word: {w}'],
                      ['Please spell these words: {w}', 'Spell each of these words: {w}'], w=listed(ws))
        return Question('long spell', user, f'There are {len(ws)} words.', '\n'.join('-'.join(w) for w in ws))
    user = phrase(rng, split, ['Spell {w}.', 'Spell the word {w}.', 'How do you spell {w}?', 'Please spell {w}.', 'How is {w} spelled?',
                               'Spell {w} for me.', 'spell {w}'],
                  ['Please spell the word {w}.', 'How do you spell the word {w}?', 'How is the word {w} spelled?'], w=ws[0])
    return Question('spell', user, f'I spell {ws[0]}.', '-'.join(ws[0]))


def copy(rng, split, long=False):
    def make():
        return ' '.join(word(rng) for _ in range(rng.randint(10, 18) if long else rng.randint(1, 7)))
    text = fresh(rng, split, make)
    user = phrase(rng, split, ['Repeat after me:\n{t}', 'Repeat:\n{t}', 'Copy this:\n{t}', 'Say this:\n{t}', 'Say:\n{t}', 'Echo:\n{t}', 'Write this:\n{t}',
                               'Please repeat:\n{t}', 'Copy:\n{t}', 'Repeat these words:\n{t}'],
                  ['Please copy this:\n{t}', 'Repeat this:\n{t}', 'Say these words:\n{t}'], t=text)
    return Question('long copy' if long else 'copy', user, 'I repeat it.', text)


def times(rng, split):
    w, n = fresh(rng, split, lambda: (known(rng), rng.randint(2, 12)))
    user = phrase(rng, split, ['Say {w} {n} times.', 'Write {w} {n} times.', 'Repeat {w} {n} times.', 'Say the word {w} {n} times.'],
                  ['Please say {w} {n} times.', 'Write the word {w} {n} times.'], w=w, n=n)
    return Question('times', user, f'{n} times.', ' '.join([w] * n))


# ---- lists and code ------------------------------------------------------------------------------------------------


def capital_list(rng, split):
    countries = fresh(rng, split, lambda: tuple(rng.sample(COUNTRIES, rng.choice((2, 3, 4, 5, 6, 7, 8)))))
    user = phrase(rng, split, ['List the capitals of {c}.', 'What are the capitals of {c}?', 'Name the capitals of {c}.',
                               'Give me the capitals of {c}.', 'Capitals of {c}?', 'The capitals of {c}, please.'],
                  ['Tell me the capitals of {c}.', 'Please list the capitals of {c}.', 'Which cities are the capitals of {c}?'], c=listed(countries))
    return Question('capital list', user, f'There are {len(countries)} countries.', '\n'.join(f'{c}: {CAPITALS[c]}' for c in countries))


def json_object(rng, split):
    def make():
        fields = rng.sample(('name', 'age', 'city', 'pet', 'food', 'size'), rng.randint(2, 5))
        value = {'name': lambda: rng.choice(NAMES), 'age': lambda: rng.randint(1, 99), 'city': lambda: rng.choice(list(CAPITALS.values())),
                 'pet': lambda: known(rng), 'food': lambda: known(rng), 'size': lambda: rng.randint(1, 99)}
        return tuple((f, value[f]()) for f in fields)
    fields = fresh(rng, split, make)
    user = phrase(rng, split, ['Write JSON with {f}.', 'Make JSON: {f}', 'JSON with {f}', 'Give me JSON with {f}.', 'Make a JSON object with {f}.',
                               'Write a JSON object with {f}.', 'As JSON: {f}'],
                  ['Give me a JSON object with {f}.', 'Write JSON: {f}', 'Make JSON with {f}.'], f=listed([f'{k} {v}' for k, v in fields]))
    text = ', '.join(f'"{k}": {v}' if isinstance(v, int) else f'"{k}": "{v}"' for k, v in fields)
    return Question('json', user, f'{len(fields)} fields.', '{' + text + '}')


OPERATIONS = {'adds': '+', 'multiplies': '*', 'subtracts': '-', 'divides': '/', 'compares': '=='}


def code(rng, split):
    kind = rng.choice(('function', 'function', 'loop', 'class'))
    if kind == 'function':
        op, name, a, b = fresh(rng, split, lambda: (rng.choice(list(OPERATIONS)), word(rng), *rng.sample('abcdmnpqstuvxyz', 2)))
        user = phrase(rng, split, ['Write a Python function {n} that {o} {a} and {b}.', 'Write a function {n} that {o} {a} and {b}.',
                                   'Python function {n} that {o} {a} and {b}', 'Code a function {n} that {o} {a} and {b}.'],
                      ['Give me a Python function {n} that {o} {a} and {b}.', 'Please write a function {n} that {o} {a} and {b}.'],
                      n=name, o=op, a=a, b=b)
        answer = f'def {name}({a}, {b}):\n    return {a} {OPERATIONS[op]} {b}'
    elif kind == 'loop':
        w, n = fresh(rng, split, lambda: (known(rng), rng.randint(2, 99)))
        user = phrase(rng, split, ['Write a Python loop that prints {w} {n} times.', 'Write a loop that prints {w} {n} times.',
                                   'Code a loop that prints {w} {n} times.', 'Python loop that prints {w} {n} times'],
                      ['Give me a loop that prints {w} {n} times.', 'Please write a Python loop that prints {w} {n} times.'], w=w, n=n)
        answer = f'for i in range({n}):\n    print("{w}")'
    else:
        fields = fresh(rng, split, lambda: tuple(rng.sample(WORDS, rng.randint(2, 4))))
        name = fields[0].capitalize()
        user = phrase(rng, split, ['Write a Python class {n} with {f}.', 'Write a class {n} with {f}.', 'Code a class {n} with {f}.',
                                   'Python class {n} with {f}'],
                      ['Give me a class {n} with {f}.', 'Please write a class {n} with {f}.'], n=name, f=listed(fields[1:]))
        answer = f'class {name}:\n    def __init__(self, {", ".join(fields[1:])}):\n' + '\n'.join(f'        self.{f} = {f}' for f in fields[1:])
    return Question('code', user, f'A {kind}.', answer)


# ---- everything else -----------------------------------------------------------------------------------------------


def unknown(rng, split):
    user = phrase(rng, split, [
        'Who wrote {W}?', 'When was {N} born?', 'How many people live in {c}?', 'What colour is the {w}?', 'How old is {N}?', 'Where does {N} live?',
        'Why is the {w} so big?', 'Who is the president of {c}?', 'What is the longest river in {c}?', 'What is a {w}?', 'Who is {N}?',
        'What is the capital of {W}?', 'How do I cook a {w}?', 'What is the weather in {C}?', 'Who invented the {w}?', 'What does {w} mean?',
        'How far is {c} from {d}?', 'What is your favourite {w}?', 'Where is my {w}?', 'Tell me a story about a {w}.', 'Translate {w} into French.',
        'What is the capital of {W}?', 'Which country has the capital {W}?', 'Tell me the capital of {W}.', 'What is {W}\'s capital?',
        'Is {N} at home?', 'What time is it in {C}?', 'How heavy is a {w}?', 'What is the price of a {w}?', 'Who won the game in {c}?'],
        ['Who painted {W}?', 'What is the currency of {c}?', 'How tall is {N}?', 'Where can I buy a {w}?', 'Name the capital of {W}.',
         'What is the highest mountain in {c}?', 'When did {N} leave?', 'How much is a {w}?'],
        W=made_up(rng).capitalize(), N=rng.choice(NAMES), c=rng.choice(COUNTRIES), d=rng.choice(COUNTRIES), w=word(rng),
        C=CAPITALS[rng.choice(COUNTRIES)])
    return Question('unknown', user, 'This is outside.', UNKNOWN)


def greeting(rng, split):
    user, answer = rng.choice((('Hello', 'Hello! What do you want to know?'), ('Hi', 'Hello! What do you want to know?'),
                               ('Hello!', 'Hello! What do you want to know?'), ('Good morning', 'Hello! What do you want to know?'),
                               ('Who are you?', 'I am nano, a very small Clover.'), ('What are you?', 'I am nano, a very small Clover.'),
                               ('What is your name?', 'I am nano, a very small Clover.'), ('Thank you', 'You are welcome.'),
                               ('Thanks', 'You are welcome.'), ('Thanks!', 'You are welcome.')))
    return Question('greeting', user, 'I am polite.', answer)


# How often each kind is drawn in training; the long ones are the answers over several blocks.
KINDS = {
    'capital': (capital, 34), 'reverse': (reverse, 8), 'opposite': (opposite, 4), 'calendar': (calendar, 3), 'calendar list': (calendar_list, 1),
    'arithmetic': (arithmetic, 10), 'count': (count, 4), 'sort': (sort, 4), 'letters': (letters, 2), 'spell': (spell, 4), 'copy': (copy, 7),
    'times': (times, 2), 'capital list': (capital_list, 6), 'json': (json_object, 4), 'code': (code, 4), 'unknown': (unknown, 6),
    'greeting': (greeting, 2), 'long count': (lambda rng, split: count(rng, split, long=True), 2),
    'long spell': (lambda rng, split: spell(rng, split, long=True), 1), 'long copy': (lambda rng, split: copy(rng, split, long=True), 2),
}


def draw(rng, split, kind=None):
    kind = kind or rng.choices(list(KINDS), [weight for _, weight in KINDS.values()])[0]
    return KINDS[kind][0](rng, split)
