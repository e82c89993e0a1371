#!/usr/bin/python3
"""What python3-redis does with a drive.

    resp_client.py use PORT            commands, pipelines, transactions, and what is refused
    resp_client.py load PORT FILE      sets keys until the drive goes, and writes down what was confirmed
    resp_client.py verify PORT FILE    whether all of that is there
"""
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


if __name__ == "__main__":
    {"use": use, "load": load, "verify": verify}[sys.argv[1]](int(sys.argv[2]), *sys.argv[3:])
