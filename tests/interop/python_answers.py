# The Python client `kinetic` of PyPI makes one call after the other, and prints what it was answered, each as a line of
# JSON: compare_answers.py compares what two devices have said. It was written for Python 2, and runs on nothing later.
#
#   python2.7 python_answers.py PACKAGES PORT TLS-PORT PEER-PORT

import hashlib
import json
import logging
import site
import sys

site.addsitedir(sys.argv[1])  # PACKAGES: where pip has put the client
sys.path.insert(0, sys.argv[1])

import kinetic  # noqa: E402
from kinetic import operations  # noqa: E402
from kinetic.common import ACL, Domain, LogTypes, P2pOp, Roles  # noqa: E402
from kinetic.deprecated import BlockingClient  # noqa: E402

logging.disable(logging.CRITICAL)
port, tls_port, peer_port = map(int, sys.argv[2:5])


def printable(value):
    if isinstance(value, (bytearray, str)):
        text = bytes(value)
        if len(text) > 200:
            return '%d bytes, SHA-1 %s' % (len(text), hashlib.sha1(text).hexdigest())
        return text if all(' ' <= each <= '~' for each in text) else '0x' + text.encode('hex')
    if isinstance(value, kinetic.Entry):
        return {'key': printable(value.key), 'value': printable(value.value), 'version': printable(value.metadata.version),
                'tag': printable(value.metadata.tag), 'algorithm': value.metadata.algorithm}
    if isinstance(value, (list, tuple)):
        return [printable(each) for each in value]
    if hasattr(value, 'ListFields'):
        return fields_of(value)
    return value


# Of a protobuf message, as the client hands it on.
def fields_of(message):
    fields = {}
    for descriptor, value in message.ListFields():
        repeated = descriptor.label == descriptor.LABEL_REPEATED
        fields[descriptor.name] = [printable(each) for each in value] if repeated else printable(value)
    return fields


def call(name, function, *arguments, **named):
    try:
        answer = {'result': printable(function(*arguments, **named))}
    except Exception as exception:  # whatever the client makes of the answer is its answer
        answer = {'exception': type(exception).__name__}
        if hasattr(exception, 'code'):
            answer['status'] = exception.code
        answer['message'] = str(getattr(exception, 'value', exception))
    print(json.dumps({'call': name, 'answer': answer}, sort_keys=True))


client = BlockingClient('127.0.0.1', port, connect_timeout=10, socket_timeout=10)
client.connect()
call('greeting: configuration', lambda: client.config)
call('greeting: limits', lambda: client.limits)
call('noop', client.noop)
call('put', client.put, 'k1', 'one', new_version='v1')
call('put: there is one', client.put, 'k1', 'two', new_version='v2')
call('put: another version', client.put, 'k1', 'two', version='v0', new_version='v2')
call('put: the right version', client.put, 'k1', 'two', version='v1', new_version='v2')
call('put: forced', client.put, 'k1', 'three', version='v0', new_version='v3', force=True)
call('put: an empty value', client.put, 'k2', '', new_version='v')
call('put: written through', client.put, 'k3', 'x', synchronization=1)
call('put: the largest value', client.put, 'large', 'L' * (1 << 20))
call('put: a longer version', client.put, 'VV', 'x', new_version='V' * 2049)
call('get', client.get, 'k1')
call('get: none', client.get, 'none')
call('get: an empty value', client.get, 'k2')
call('get: the largest value', client.get, 'large')
call('get: metadata', client.getMetadata, 'k1')
call('getversion', client.getVersion, 'k1')
call('getversion: none', client.getVersion, 'none')
call('getnext', client.getNext, 'k1')
call('getnext: the end', client.getNext, 'z')
call('getprevious', client.getPrevious, 'k3')
call('getprevious: the end', client.getPrevious, 'A')
call('getkeyrange', client.getKeyRange, 'k1', 'k3')
call('getkeyrange: of everything', client.getKeyRange)
call('getkeyrange: without ends', client.getKeyRange, 'k1', 'k3', False, False)
call('getkeyrange: backwards', client.getKeyRange, 'k1', 'k3', reverse=True, maxReturned=2)
call('getkeyrange: no keys', client.getKeyRange, 'x', 'z')
call('getkeyrange: too many', client.getKeyRange, 'k1', 'k3', maxReturned=201)
call('delete: another version', client.delete, 'k3', version='v0')
call('delete', client.delete, 'k3')
call('delete: none', client.delete, 'k3')
call('flush', client.flush)


def batch(name, end, *changes):
    def make():
        one = client.begin_batch()
        for change in changes:
            change(one)
        getattr(one, end)()
    call(name, make)


batch('batch', 'commit', lambda one: one.put('b1', 'one', new_version='v1'), lambda one: one.delete('k2', version='v'))
call('batch: what was put', client.get, 'b1')
call('batch: what was deleted', client.get, 'k2')
batch('batch: abort', 'abort', lambda one: one.put('b3', 'one'))
call('batch: what was aborted', client.get, 'b3')

for kind in ('UTILIZATIONS', 'TEMPERATURES', 'CAPACITIES', 'CONFIGURATION', 'STATISTICS', 'MESSAGES', 'LIMITS'):
    call('getlog: ' + kind.lower(), client.getLog, [getattr(LogTypes, kind)])
call('getlog: everything, by types', lambda: list(client.getLog(LogTypes.all()).types))
call('getlog: an unknown device log', client.getLog, [LogTypes.DEVICE], device='com.example.none')
call('push', client.push, ['k1', P2pOp('none'), P2pOp('k1', newKey='pushed', force=True)], '127.0.0.1', peer_port)
call('setup', client.setClusterVersion, 3)
call('setup: the former version', client.noop)
client.cluster_version = 3
call('setup: back', client.setClusterVersion, 0)
client.cluster_version = 0

secure = kinetic.SecureClient('127.0.0.1', tls_port, connect_timeout=10, socket_timeout=10)
secure.connect()
acl = ACL(2, 'second')
acl.domains = [Domain([Roles.READ])]
call('security: an identity', secure.setACL, [acl])
second = BlockingClient('127.0.0.1', port, identity=2, secret='second', connect_timeout=10, socket_timeout=10)
second.connect()
call('as this identity: get', second.get, 'b1')
call('as this identity: put', second.put, 'k9', 'x')
call('security: a lock PIN', secure.setLockPin, 'lock', '')
call('lock', secure.lock, pin='lock')
call('while it is locked: get', client.get, 'b1')
call('unlock: a wrong PIN', secure.unlock, pin='wrong')
call('unlock', secure.unlock, pin='lock')
call('after it was unlocked', client.get, 'b1')
call('security: an erase PIN', secure.setErasePin, 'erase', '')
call('erase: a wrong PIN', secure.erase, pin='wrong')
call('erase', secure.erase, pin='erase')
# Clients from before the erase go on.
call('after the erase: get', client.get, 'b1')
call('after the erase: getkeyrange', client.getKeyRange)
call('after the erase: put', client.put, 'k1', 'one')
call('secure erase', secure.instantSecureErase, pin='any')
call('after the secure erase: get', client.get, 'k1')
