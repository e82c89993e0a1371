#!/usr/bin/python3
"""What python3-redis does with a drive.

    resp_client.py use PORT            commands, pipelines, transactions, and what is refused
    resp_client.py load PORT FILE      sets keys until the drive goes, and writes down what was confirmed
    resp_client.py verify PORT FILE    whether all of that is there
    resp_client.py compare PORT REDIS  whether random commands are answered as by the redis-server at port REDIS
"""
import random
import sys

import redis


def connect(port, **how):
    return redis.Redis(port=port, username="1", password="asdfasdf", decode_responses=True, **how)


def refused(words, ask):
    try:
        ask()
    except redis.RedisError as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"not refused: {words}")


def use(port):
    db = connect(port)
    assert db.ping() and db.flushdb()
    assert db.set("a", "x") is True and db.get("a") == "x"
    assert db.set("a", "y", nx=True) is None
    assert db.set("a", "y", get=True) == "x"
    assert db.mset({"b": 1, "c": 2}) and db.mget("a", "b", "none") == ["y", "1", None]
    assert db.incr("n", 5) == 5 and db.append("a", "z") == 2 and db.getrange("a", -1, -1) == "z"
    db.hset("h", mapping={"x": 1, "y": "z"})
    assert db.hgetall("h") == {"x": "1", "y": "z"} and db.type("h") == "hash"

    pipe = db.pipeline(transaction=False)
    for i in range(1000):
        pipe.set(f"p{i:03}", i)
    assert all(pipe.execute())
    assert sorted(db.scan_iter("p*", count=77)) == [f"p{i:03}" for i in range(1000)]
    assert db.dbsize() == 1005
    assert db.zrangebylex("pinstripe:keys", "[p01", "(p012") == ["p010", "p011"]

    assert db.pipeline().set("q", 1).incr("q").execute() == [True, 2]

    def swap(pipe):
        b, c = pipe.mget("b", "c")
        pipe.multi()
        pipe.mset({"b": c, "c": b})

    assert db.transaction(swap, "b", "c") == [True] and db.mget("b", "c") == ["2", "1"]
    with db.pipeline() as pipe:
        pipe.watch("b")
        db.set("b", "else")
        pipe.multi()
        pipe.set("b", "mine")
        refused("Watched variable changed", pipe.execute)
    assert db.get("b") == "else"

    large = "v" * (1 << 20)
    assert db.set("large", large) and db.get("large") == large
    refused("the limit is 1048576", lambda: db.set("large", large + "v"))
    refused("until it is deleted", lambda: db.set("e", "1", ex=5))
    refused("unknown command", lambda: db.lpush("l", 1))
    refused("wrong kind", lambda: db.get("h"))
    refused("invalid username-password", lambda: redis.Redis(port=port, password="no").get("a"))
    refused("Authentication required", lambda: redis.Redis(port=port).get("a"))
    assert db.info()["redis_mode"] == "standalone" and db.config_get("appendonly") == {"appendonly": "yes"}
    db.client_setname("me")
    assert any(client["name"] == "me" for client in db.client_list())
    assert db.delete("a", "b", "none") == 2 and db.unlink("c") == 1 and db.exists("large", "a") == 1


def load(port, name):
    db = connect(port)
    with open(name, "w", buffering=1) as confirmed:
        try:
            for i in range(10**9):
                pipe = db.pipeline(transaction=i % 2 == 0)
                for j in range(4):
                    pipe.set(f"load{i * 4 + j}", f"{i}:{j}" * (i % 300))
                pipe.execute()
                print(i, file=confirmed)
        except redis.ConnectionError:
            return


def verify(port, name):
    db = connect(port)
    with open(name) as confirmed:
        rounds = [int(line) for line in confirmed]
    assert rounds
    for i in rounds:
        expected = [f"{i}:{j}" * (i % 300) for j in range(4)]
        found = db.mget([f"load{i * 4 + j}" for j in range(4)])
        assert found == expected, f"round {i}"
    # Of a transaction that was not confirmed all of it is there, or nothing.
    last = len(rounds)
    if last % 2 == 0:
        there = db.exists(*[f"load{last * 4 + j}" for j in range(4)])
        assert there in (0, 4), f"{there} of 4"
    print(f"{len(rounds)} rounds")


def compare(port, other, seed=1, rounds=20000):
    """Answers are the same; of errors only the first word must be, and only Redis has an order of its own."""
    ours = connect(port).connection_pool.get_connection("PING")
    theirs = redis.Redis(port=int(other), decode_responses=True).connection_pool.get_connection("PING")
    chance = random.Random(seed)

    def key():
        return chance.choice(["a", "b", "c", "ab", "h", "", "k[1]"])

    def value():
        return chance.choice(["", "1", "-7", "text", "9223372036854775807", "x" * 50, "v", "w"])

    def number():
        return str(chance.choice([0, 1, -1, 2, 5, -3, 100, -100, 2**40, 2**63 - 1, -(2**63)]))

    def field():
        return chance.choice(["f", "g", ""])

    unordered = {"KEYS", "HKEYS", "HVALS"}
    makers = [
        lambda: ["SET", key(), value()], lambda: ["GET", key()], lambda: ["DEL", key()],
        lambda: ["SET", key(), value(), chance.choice(["NX", "XX", "GET", "KEEPTTL"])],
        lambda: ["SET", key(), value(), chance.choice(["NX", "XX"]), "GET"],
        lambda: ["SET", key(), value(), "NX", "XX"], lambda: ["SETNX", key(), value()],
        lambda: ["GETSET", key(), value()], lambda: ["GETDEL", key()], lambda: ["MGET", key(), key(), "none"],
        lambda: ["MSET", key(), value(), key(), value()], lambda: ["MSET", key(), value(), key()],
        lambda: ["STRLEN", key()], lambda: ["GETRANGE", key(), number(), number()], lambda: ["SUBSTR", key(), "0", number()],
        lambda: ["APPEND", key(), value()], lambda: ["INCR", key()], lambda: ["DECR", key()],
        lambda: ["INCRBY", key(), number()], lambda: ["DECRBY", key(), number()], lambda: ["DEL", key(), key(), key()],
        lambda: ["UNLINK", key()], lambda: ["EXISTS", key(), key()], lambda: ["TYPE", key()], lambda: ["TTL", key()],
        lambda: ["PTTL", key()], lambda: ["DBSIZE"], lambda: ["KEYS", chance.choice(["*", "a*", "?", "[ab]", "k\\[1]", "[^a]"])],
        lambda: ["HSET", "h", field(), value()], lambda: ["HSET", key(), field(), value(), field(), value()],
        lambda: ["HMSET", "h", field(), value()], lambda: ["HGET", key(), field()], lambda: ["HMGET", "h", field(), "none"],
        lambda: ["HDEL", "h", field(), field()], lambda: ["HLEN", key()], lambda: ["HEXISTS", "h", field()],
        lambda: ["HKEYS", "h"], lambda: ["HVALS", "h"], lambda: ["ECHO", value()], lambda: ["PING", value()], lambda: ["SELECT", "0"],
        # What is watched is never removed: a key that came and went is as it was here, and changed for Redis.
        lambda: ["SET", "w", value()], lambda: ["APPEND", "w", value()], lambda: ["GET", "w"], lambda: ["WAIT", "0", "0"], lambda: ["GET"], lambda: ["GETRANGE", key(), "x", "1"], lambda: ["NOSUCH", key()],
        lambda: ["MULTI"], lambda: ["EXEC"], lambda: ["DISCARD"], lambda: ["WATCH", "w"], lambda: ["UNWATCH"],
        lambda: ["CLIENT", "GETNAME"], lambda: ["CLIENT", "SETNAME", chance.choice(["me", "a b"])],
    ]

    def answer(connection, words):
        connection.send_command(*words)
        try:
            return connection.read_response()
        except redis.ResponseError as error:
            return error

    def plain(answered, words):
        if isinstance(answered, Exception):
            return type(answered).__name__
        if isinstance(answered, list):
            answered = [plain(one, []) for one in answered]
            return sorted(answered, key=str) if words and words[0] in unordered else answered
        return answered

    listing = {"KEYS", "DBSIZE"}  # which cannot be parts of a transaction here
    inside = False
    for number_of in range(rounds):
        words = chance.choice(makers)()
        if inside and (words[0] in listing | {"HKEYS", "HVALS", "SELECT"}):
            continue
        found, expected = answer(ours, words), answer(theirs, words)
        assert plain(found, words) == plain(expected, words), f"{number_of}: {words}: {found!r}, redis: {expected!r}"
        if words[0] in ("EXEC", "DISCARD"):
            inside = False
        elif words[0] == "MULTI":
            inside = True
    print(f"{rounds} commands")


if __name__ == "__main__":
    {"compare": compare, "use": use, "load": load, "verify": verify}[sys.argv[1]](int(sys.argv[2]), *sys.argv[3:])
