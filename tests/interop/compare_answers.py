#!/usr/bin/python3
"""Compares what a client was answered by a Kinetic simulator and by pinstriped: the same calls in the same order, and
each field of each answer. What differs must be in the table below, with its reason; and what is in the table must
differ, or it has to go.

    compare_answers.py CLIENT SIMULATOR-FILE PINSTRIPED-FILE    CLIENT: wire, java or python
    compare_answers.py --test                                   whether it finds what it has to
"""

import json
import re
import sys

ABSENT = 'absent'

# Calls, fields, what the simulator says, what we say (patterns, of the whole), and why. Fields as "body.range.keys.0"; the
# number of a list's elements is its field "#". A tuple of one client's names comes first where not all have it.
# MAY: by chance both can say the same, so that it need not occur.
MAY = object()
ANY = '(?!absent$).*'
ALL = ('wire', 'java', 'python')

CONFIGURATION = r'(body\.getLog\.configuration|result\.configuration|result)\.'
LIMITS = r'(body\.getLog\.limits|result\.limits|result)\.'
ABOUT = 'greeting.*|getlog: configuration'
ABOUT_LIMITS = 'greeting.*|getlog: limits'
UTILIZATION = r'(body\.getLog\.utilizations|result\.utilizations|result)\.'
TEMPERATURE = r'(body\.getLog\.temperatures|result\.temperatures|result)\.'
STATISTICS = r'(body\.getLog\.statistics|result\.statistics|result)\.'

TABLE = [
    # --- Words
    (ALL, '.*', r'(.*\.)?(statusMessage|message)', '.*', '.*',
     'Messages are for people, and each says what went wrong in its own words. Clients go by the code.'),

    # --- What a device says about itself
    (ALL, ABOUT, CONFIGURATION + '(vendor|model|serialNumber|worldWideName|wwn|version|sourceHash|protocolSourceHash)', ANY, ANY,
     'They are two devices, of two makers.'),
    (ALL, ABOUT, CONFIGURATION + '(port|tlsPort)', ANY, ANY, 'They have ports of their own.'),
    (ALL, ABOUT, CONFIGURATION + '(compilationDate|protocolCompilationDate)', '... ... .. ..:..:.. UTC ....',
     '... ... .. ..:..:.. UTC ....', 'The simulator says when it was started, we when we were built.', MAY),
    (ALL, ABOUT, CONFIGURATION + 'protocolVersion', '3.0.6', '4.0.1',
     'We speak a later version of the protocol; no client refuses one.'),
    (('wire',), ABOUT, CONFIGURATION + 'currentPowerLevel', ABSENT, '1', 'The field came with version 3.1 of the protocol.'),
    (ALL, ABOUT, CONFIGURATION + r'interfaces?\..*ipv6Address', ANY, ANY,
     'The same address in the form of Java and in that of RFC 5952; the simulator adds the interface.', MAY),
    (ALL, ABOUT_LIMITS, LIMITS + '(maxTagSize|maxConnections|maxOutstandingReadRequests|maxOutstandingWriteRequests|'
     'maxMessageSize|maxIdentityCount)', '4294967295|-1', r'\d+', 'The simulator has no limit, or says so; we have one.'),
    (('wire', 'python'), ABOUT_LIMITS, LIMITS + 'maxOperationCountPerBatch', '15', '4096', 'More fits into our batches.'),
    (('wire', 'python'), ABOUT_LIMITS, LIMITS + 'maxBatchCountPerDevice', '5', '1000', 'We allow more open batches.'),
    (('wire', 'python'), ABOUT_LIMITS, LIMITS + 'maxPinSize', ABSENT, '200', 'The simulator does not say it.'),
    (('wire',), ABOUT_LIMITS, LIMITS + '(maxBatchSize|maxDeletesPerBatch)', ABSENT, r'\d+',
     'The fields came with version 4.0 of the protocol.'),

    # --- What is measured
    (ALL, 'getlog: utilizations', UTILIZATION + r'\d\.(value|1)', r'[01]?\.?\d+(e-\d+)?', r'absent|[01]?\.?\d+(e-\d+)?',
     'The simulator draws lots. We say what was measured, or nothing, which this client may show as 0.', MAY),
    (ALL, 'getlog: temperatures', TEMPERATURE + r'\d\.(current|minimum|maximum|target|1)', r'\d+(\.\d+)?', r'absent|-?\d+(\.\d+)?',
     'The simulator draws lots. We say what sensors say, or nothing, which this client may show as 0.', MAY),
    (('wire', 'python'), 'getlog: capacities', r'.*\.(nominalCapacityInBytes|portionFull)', ANY, ANY,
     'Each says what it has; the simulator takes the whole disk.'),
    (('wire',), 'getlog: capacities', r'body\.getLog\.field 10[123]', ABSENT, ANY,
     'Our extension, which says what a device may have forgotten; others pass over fields that they do not know.'),
    (ALL, 'getlog: statistics', STATISTICS + '#', '11', '19', 'We count all types of requests.'),
    (ALL, 'getlog: statistics', STATISTICS + r'(13|14|15|26|30|32|36|38|40|42|44|46|FLUSHALLDATA|NOOP|INVALID_MESSAGE_TYPE|PINOP|MEDIASCAN|'
     r'MEDIAOPTIMIZE|.*BATCH)\b.*', ABSENT, ANY, 'Types that the simulator does not count.'),
    (ALL, 'getlog: statistics', STATISTICS + r'\w+\.bytes', r'\d+', r'\d+',
     'The specification counts the bytes of values that were moved, and so do we; the simulator counts messages as well.'),
    (('java', 'python'), 'getlog: statistics', STATISTICS + r'(4|PUT)\.count', r'\d+', r'\d+',
     'The simulator does not count what is in a batch that ends in vain.'),
    (('wire',), 'getlog: statistics', STATISTICS + r'\w+\.maxLatency', ABSENT, r'\d+',
     'The field came with version 4.0.1 of the protocol.'),
    (('wire', 'python'), 'getlog: messages', r'.*\.messages', 'Message from simulator', ANY, 'These are our events.'),

    # --- What is asked in a way that the specification leaves open
    (('wire',), 'put: no synchronization', r'status\.code', '16', '1',
     'A put that does not say how safe it must be is written through. Clients in C leave it out, and expect success.'),
    (('wire',), 'getkeyrange: of none', r'status\.code', '5', '16', 'It is an invalid request, and no error inside of us.'),
    (('wire',), 'a number that was used before', r'header\.ackSequence', ABSENT, ANY,
     'The simulator does not say which request it refuses, so that nobody can tell.'),
    (('wire',), 'an unknown identity', r'(header|status)\..*', ABSENT, ANY,
     'The simulator sends an empty message, for which clients wait until they give up. We say which request fails, and why.'),
]


def flat(value, path=''):
    if value == {}:
        yield path, 'nothing in it'
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from flat(part, f'{path}.{name}' if path else name)
    elif isinstance(value, list):
        yield f'{path}.#', len(value)
        for number, part in enumerate(value):
            # Statistics have no order of their own.
            name = part['messageType'] if isinstance(part, dict) and 'messageType' in part else number
            yield from flat(part, f'{path}.{name}')
    else:
        yield path, value


def text(value):
    return value if isinstance(value, str) else json.dumps(value)


def compare(client, simulator, ours, table):
    """What is wrong, as sentences."""
    wrong = []
    used = set()
    if [line['call'] for line in simulator] != [line['call'] for line in ours]:
        return [f'the {client} client made other calls on one device than on the other']
    for theirs, mine in zip(simulator, ours):
        call = theirs['call']
        one, other = dict(flat(theirs['answer'])), dict(flat(mine['answer']))
        for field in list(one) + [name for name in other if name not in one]:
            left, right = text(one.get(field, ABSENT)), text(other.get(field, ABSENT))
            if left == right:
                continue
            for number, (clients, calls, fields, said, says, *_) in enumerate(table):
                patterns = ((calls, call), (fields, field), (said, left), (says, right))
                if client in clients and all(re.fullmatch(pattern, what, re.S) for pattern, what in patterns):
                    used.add(number)
                    break
            else:
                wrong.append(f'{client}: {call}: {field}: the simulator says {left[:200]}, pinstriped {right[:200]}')
    for number, entry in enumerate(table):
        if client in entry[0] and number not in used and MAY not in entry:
            wrong.append(f'{client}: no longer differs, so the table must not say so: {entry[1]}: {entry[2]}')
    return wrong


def load(name):
    with open(name, encoding='utf-8') as file:
        return [json.loads(line) for line in file]


def test():
    def one(value, field='a'):
        return [{'call': 'get', 'answer': {field: value}}]

    known = [(('wire',), 'get', 'a', '1', '2', 'why')]
    assert compare('wire', one(1), one(1), []) == []
    assert len(compare('wire', one(1), one(2), [])) == 1
    assert compare('wire', one(1), one(2), known) == []
    assert len(compare('wire', one(1), one(3), known)) == 2, 'another difference than the known one'
    assert len(compare('wire', one(1), one(1), known)) == 1, 'a known one that does not occur'
    assert compare('java', one(1), one(1), known) == [], 'one of another client'
    assert compare('wire', one(1), one(1), [known[0] + (MAY,)]) == []
    assert len(compare('wire', one(1), one(1, 'b'), [])) == 2, 'one is missing, another one too many'
    assert len(compare('wire', one([1, 2]), one([1]), [])) == 2, 'the number, and the element'
    assert len(compare('wire', one(1), [], [])) == 1, 'fewer calls'
    assert len(compare('wire', one({}), one({}, 'b'), [])) == 2, 'something empty is something'
    absent = [(('wire',), 'get', 'b', ABSENT, ANY, 'why')]
    assert compare('wire', one(1), [{'call': 'get', 'answer': {'a': 1, 'b': 2}}], absent) == []
    assert len(compare('wire', [{'call': 'get', 'answer': {'a': 1, 'b': 2}}], one(1), absent)) == 2, 'the wrong way round'
    assert all(len(entry) in (6, 7) and entry[5] for entry in TABLE), 'each difference has a reason'


def main():
    if sys.argv[1:] == ['--test']:
        return test()
    client, simulator, ours = sys.argv[1], load(sys.argv[2]), load(sys.argv[3])
    assert client in ALL and simulator, 'usage: see above'
    wrong = compare(client, simulator, ours, TABLE)
    for sentence in wrong:
        print(f'  {sentence}')
    print(f'  {len(simulator)} answers compared')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
