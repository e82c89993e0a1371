#include "engines/postgres/sql.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/checksum.h"

namespace pinstripe {
namespace {

// Names that stand for others in the texts below: $schema, $change, $fence, $making, $layout,
// $list_bytes, $direction.
void Replace(std::string& text, std::string_view name, std::string_view value) {
  for (size_t at = text.find(name); at != text.npos; at = text.find(name, at + value.size())) {
    text.replace(at, name.size(), value);
  }
}

// Settings that a version of PostgreSQL does not have are left out. Nothing that is asked is to
// hang for ever, nor to be planned as if the tables were small, and other names are never ours.
// `on` waits for the disk of the server and of the standbys that it is to wait for; what is set for
// others, or later for all, does not count. Only `remote_apply` is more.
constexpr std::string_view kSettings = R"sql(
SELECT pg_catalog.set_config(s.name, s.value, false)
FROM (VALUES
  ('search_path', 'pg_catalog'), ('client_min_messages', 'warning'),
  ('default_transaction_isolation', 'read committed'), ('default_transaction_deferrable', 'off'),
  ('synchronous_commit',
   CASE pg_catalog.current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply'
   ELSE 'on' END),
  ('statement_timeout', '20s'), ('lock_timeout', '0'), ('transaction_timeout', '40s'),
  ('idle_in_transaction_session_timeout', '40s'), ('idle_session_timeout', '0'),
  ('tcp_keepalives_idle', '10'), ('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3'),
  ('tcp_user_timeout', '20000'), ('client_connection_check_interval', '5s'),
  ('enable_seqscan', 'off'), ('enable_bitmapscan', 'off'), ('enable_hashjoin', 'off'),
  ('enable_mergejoin', 'off'), ('jit', 'off'), ('plan_cache_mode', 'force_generic_plan')
) AS s(name, value)
WHERE s.name IN (SELECT p.name FROM pg_catalog.pg_settings p);
)sql";

constexpr std::string_view kFacts = R"sql(
SELECT pg_is_in_recovery() AS standby,
  current_setting('transaction_read_only') AS read_only,
  current_setting('server_version') AS version,
  current_setting('fsync') AS fsync,
  current_setting('full_page_writes') AS full_page_writes,
  current_setting('autovacuum') AS autovacuum,
  current_setting('synchronous_standby_names') AS synchronous,
  current_setting('is_superuser') AS superuser,
  current_user AS "user", current_database() AS database,
  (SELECT system_identifier FROM pg_control_system()) AS system,
  CASE WHEN pg_is_in_recovery() THEN ''
    ELSE substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END AS timeline,
  CASE WHEN pg_is_in_recovery() THEN coalesce(pg_last_wal_replay_lsn(), '0/0')
    ELSE pg_current_wal_lsn() END - '0/0'::pg_lsn AS position,
  (SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
   WHERE n.nspname = '$schema' AND c.relname IN ('store', 'records') AND c.relkind = 'r')
  + (SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
     WHERE n.nspname = '$schema' AND p.proname = '$change') AS parts
)sql";

// $1 store, $2 cluster version or null, $3 whether to raise it, $4 locks, $5 whether each is for
// itself. Of each change: $6 and $7 key and rest, $8 whether it is a put, $9 the expected version
// or null, $10 to $13 version, tag, value, crc; $14 to $16 key, rest and version of the guard, or
// null. No rests: all are empty. Answers with a letter for each change: o ok, s stale, n none, g
// guard.
constexpr std::string_view kChangeHead = R"sql((
  a_store bytea, a_wanted bigint, a_raise boolean, a_locks bigint[], a_exclusive boolean[],
  a_keys bytea[], a_rests bytea[], a_puts boolean[], a_expected bytea[],
  a_versions bytea[], a_tags bytea[], a_values bytea[], a_crcs integer[],
  a_guard_keys bytea[], a_guard_rests bytea[], a_guard_versions bytea[],
  OUT word integer, OUT has bigint, OUT codes text) LANGUAGE plpgsql VOLATILE AS )sql";

// A put that expects a version is one statement where it succeeds.
constexpr std::string_view kChangeBody = R"sql(
DECLARE
  v_id bytea;
  v_key bytea;
  v_rest bytea;
  v_digest bytea;
  v_expected bytea;
  v_has bytea;
  v_code text;
  v_done boolean;
BEGIN
  word := 0;
  codes := '';
  IF a_raise THEN
    PERFORM pg_advisory_xact_lock($fence);
  ELSE
    PERFORM pg_advisory_xact_lock_shared($fence);
  END IF;
  SELECT s.id, s.version INTO v_id, has FROM $schema.store s;
  IF v_id IS DISTINCT FROM a_store THEN
    word := 1;
    RETURN;
  END IF;
  IF current_setting('fsync') <> 'on' OR current_setting('full_page_writes') <> 'on' THEN
    word := 4;
    RETURN;
  END IF;
  IF has > a_wanted THEN
    word := 2;
    RETURN;
  END IF;
  IF has < a_wanted THEN
    IF NOT a_raise THEN
      word := 3;
      RETURN;
    END IF;
    UPDATE $schema.store s SET version = a_wanted;
    has := a_wanted;
  END IF;
  PERFORM CASE WHEN l.exclusive THEN pg_advisory_xact_lock(l.lock)
    ELSE pg_advisory_xact_lock_shared(l.lock) END
  FROM unnest(a_locks, a_exclusive) AS l(lock, exclusive);
  FOR i IN 1 .. cardinality(a_keys) LOOP
    v_key := a_keys[i];
    v_rest := coalesce(a_rests[i], '');
    v_digest := CASE WHEN v_rest = '' THEN v_rest ELSE sha256(v_rest) END;
    v_expected := a_expected[i];
    v_code := 'o';
    IF a_guard_keys[i] IS NOT NULL THEN
      SELECT r.version INTO v_has FROM $schema.records r
      WHERE r.key = a_guard_keys[i] AND r.digest =
        CASE WHEN coalesce(a_guard_rests[i], '') = '' THEN '' ELSE sha256(a_guard_rests[i]) END;
      IF coalesce(v_has, '') <> a_guard_versions[i] THEN
        v_code := 'g';
      END IF;
    END IF;
    IF v_code = 'g' THEN
      IF v_expected IS NOT NULL THEN
        SELECT r.version INTO v_has FROM $schema.records r
        WHERE r.key = v_key AND r.digest = v_digest;
        IF v_has IS NULL AND NOT a_puts[i] THEN
          v_code := 'n';
        ELSIF coalesce(v_has, '') <> v_expected THEN
          v_code := 's';
        END IF;
      END IF;
    ELSIF a_puts[i] THEN
      v_done := false;
      IF v_expected IS NULL OR v_expected <> '' THEN
        UPDATE $schema.records r
        SET version = a_versions[i], tag = a_tags[i], value = a_values[i], crc = a_crcs[i]
        WHERE r.key = v_key AND r.digest = v_digest
          AND (v_expected IS NULL OR r.version = v_expected);
        v_done := FOUND;
      END IF;
      IF NOT v_done AND (v_expected IS NULL OR v_expected = '') THEN
        INSERT INTO $schema.records AS r (key, rest, digest, version, tag, value, crc)
        VALUES (v_key, v_rest, v_digest, a_versions[i], a_tags[i], a_values[i], a_crcs[i])
        ON CONFLICT (key, digest) DO UPDATE
        SET version = excluded.version, tag = excluded.tag, value = excluded.value,
            crc = excluded.crc
        WHERE r.version = '';
        v_done := FOUND;
      END IF;
      IF NOT v_done THEN
        v_code := 's';
      END IF;
    ELSE
      DELETE FROM $schema.records r WHERE r.key = v_key AND r.digest = v_digest
        AND (v_expected IS NULL OR r.version = v_expected);
      IF NOT FOUND AND v_expected IS NOT NULL THEN
        PERFORM FROM $schema.records r WHERE r.key = v_key AND r.digest = v_digest;
        v_code := CASE WHEN FOUND THEN 's' ELSE 'n' END;
      END IF;
    END IF;
    codes := codes || v_code;
  END LOOP;
END
)sql";

// Values are mostly small and do not compress; one that is large has its place outside the row. A
// row that is changed shall find room in its page, so that the index need not be changed.
constexpr std::string_view kMake = R"sql(
SELECT pg_advisory_xact_lock($making);
DO $make$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = '$schema') THEN
    CREATE SCHEMA $schema;
  END IF;
  IF NOT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                 WHERE n.nspname = '$schema' AND c.relname = 'store') THEN
    CREATE TABLE $schema.store (
      one boolean PRIMARY KEY DEFAULT true CHECK (one),
      id bytea NOT NULL CHECK (octet_length(id) = 16),
      version bigint NOT NULL,
      layout integer NOT NULL,
      cluster text NOT NULL);
  END IF;
  IF NOT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                 WHERE n.nspname = '$schema' AND c.relname = 'records') THEN
    CREATE TABLE $schema.records (
      key bytea NOT NULL, rest bytea NOT NULL, digest bytea NOT NULL,
      version bytea NOT NULL, tag bytea NOT NULL, value bytea NOT NULL, crc integer NOT NULL,
      PRIMARY KEY (key, digest)
    ) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
    ALTER TABLE $schema.records
      ALTER key SET STORAGE EXTERNAL, ALTER rest SET STORAGE EXTERNAL,
      ALTER version SET STORAGE EXTERNAL, ALTER tag SET STORAGE EXTERNAL,
      ALTER value SET STORAGE EXTERNAL;
    -- Without its records it is another store.
    DELETE FROM $schema.store;
  END IF;
  INSERT INTO $schema.store (id, version, layout, cluster)
  VALUES ('\x$id', 0, $layout, '$cluster') ON CONFLICT DO NOTHING;
  IF NOT EXISTS (SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
                 WHERE n.nspname = '$schema' AND p.proname = '$change') THEN
    CREATE FUNCTION $schema.$change$head$body;
  END IF;
END
$make$;
)sql";

constexpr std::string_view kStore =
    "SELECT encode(s.id, 'hex'), s.version, s.layout, s.cluster FROM $schema.store s";

constexpr std::string_view kChange =
    "SELECT c.word, c.has, c.codes FROM $schema.$change($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, "
    "$11, $12, $13, $14, $15, $16) AS c";

// $1 store, $2 cluster version or null.
#define PG_WORD                                                            \
  "CASE WHEN s.id <> $1::bytea THEN 1 WHEN s.version > $2::bigint THEN 2 " \
  "WHEN s.version < $2::bigint THEN 3 ELSE 0 END AS word, s.version AS has"
#define PG_MAY "s.id = $1::bytea AND ($2::bigint IS NULL OR s.version = $2::bigint)"

// $3 keys, $4 rests. A row for each that is there, with its place among those that were asked for.
constexpr std::string_view kRead =
    "SELECT " PG_WORD R"sql(, f.place::integer, f.version, f.tag, f.value, f.crc
FROM $schema.store s LEFT JOIN (
  SELECT k.place, r.version, r.tag, r.value, r.crc
  FROM unnest($3::bytea[], $4::bytea[]) WITH ORDINALITY AS k(key, rest, place)
  JOIN $schema.records r ON r.key = k.key
    AND r.digest = CASE WHEN coalesce(k.rest, '') = '' THEN '' ELSE sha256(k.rest) END
) f ON )sql" PG_MAY;

// $3 and $4 the first key, $5 and $6 the last, $7 how many at most, $8 up to how many bytes a value
// comes along. A row for each that fits on the page, up to one more than asked for, with how many
// there are up to that number.
constexpr std::string_view kList =
    "SELECT " PG_WORD R"sql(, f.found::integer, f.key, f.rest, f.version, f.tag, f.value, f.crc
FROM $schema.store s LEFT JOIN (
  SELECT l.*, count(*) OVER () AS found,
    row_number() OVER (ORDER BY l.key $direction, l.rest $direction) AS place,
    sum(l.bytes) OVER (ORDER BY l.key $direction, l.rest $direction
                       ROWS UNBOUNDED PRECEDING) - l.bytes AS before
  FROM (
    SELECT r.key, r.rest, r.version, r.tag, r.crc,
      CASE WHEN octet_length(r.value) <= $8::bigint THEN r.value END AS value,
      octet_length(r.key) + octet_length(r.rest) + octet_length(r.version) + 64
        + CASE WHEN octet_length(r.value) <= $8::bigint THEN octet_length(r.value) ELSE 0 END
        AS bytes
    FROM $schema.records r
    WHERE r.key >= $3::bytea AND (r.key > $3::bytea OR r.rest >= $4::bytea)
      AND r.key <= $5::bytea AND (r.key < $5::bytea OR r.rest <= $6::bytea)
    ORDER BY r.key $direction, r.rest $direction LIMIT $7::bigint + 1
  ) l
) f ON f.before < $list_bytes AND )sql" PG_MAY "\nORDER BY f.place";

// $1 store, $2 the cluster version.
constexpr std::string_view kSetVersion = R"sql(
WITH fence AS MATERIALIZED (SELECT pg_advisory_xact_lock($fence) IS NULL AS locked),
changed AS (
  UPDATE $schema.store s SET version = $2::bigint FROM fence
  WHERE s.id = $1::bytea AND fence.locked IS NOT NULL RETURNING s.version)
SELECT CASE WHEN EXISTS (SELECT FROM changed) THEN 0 ELSE 1 END AS word, $2::bigint AS has)sql";

// $1 store, $2 cluster version or null. A row for each standby, or one with none.
constexpr std::string_view kLook = "SELECT " PG_WORD R"sql(,
  pg_database_size(current_database()) AS bytes, current_setting('server_version') AS version,
  current_setting('autovacuum') AS autovacuum, current_setting('synchronous_standby_names'),
  pg_current_wal_lsn() - '0/0'::pg_lsn AS position,
  w.pid IS NOT NULL AS has_standby, coalesce(w.application_name, ''),
  coalesce(host(w.client_addr), ''), coalesce(w.state, ''), coalesce(w.sync_state, ''),
  (pg_current_wal_lsn() - w.replay_lsn)::bigint AS behind
FROM $schema.store s LEFT JOIN pg_stat_replication w ON w.pid IS NOT NULL LIMIT 100)sql";

bool IsPlain(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

}  // namespace

const char* NameOf(PgStatement statement) {
  switch (statement) {
    case PgStatement::kChange: return "pinstripe_change";
    case PgStatement::kRead: return "pinstripe_read";
    case PgStatement::kList: return "pinstripe_list";
    case PgStatement::kListReverse: return "pinstripe_list_reverse";
    case PgStatement::kSetVersion: return "pinstripe_set_version";
    case PgStatement::kLook: return "pinstripe_look";
  }
  return "";
}

// PostgreSQL cuts names after 63 bytes. 'h' is no hexadecimal digit, so the name of a long one is
// nobody else's; and two that had the same would find each other's name in the store.
std::string PgSchemaOf(std::string_view cluster) {
  constexpr size_t kMost = 63;
  std::string schema = "pinstripe_";
  for (const char c : cluster) {
    if (IsPlain(c)) {
      schema += c;
    } else if (c == '_') {
      schema += "__";
    } else {
      schema += fmt::format("_{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (schema.size() > kMost) {
    schema =
        fmt::format("pinstripe__h{:08x}{:08x}_", Crc32c(AsBytes(cluster)), Crc32(AsBytes(cluster)));
    for (const char c : cluster) {
      if (IsPlain(c) && schema.size() < kMost) schema += c;
    }
  }
  return schema;
}

PgSql::PgSql(std::string cluster)
    : cluster_(std::move(cluster)),
      schema_(PgSchemaOf(cluster_)),
      lock_space_(static_cast<int32_t>(Crc32c(AsBytes(schema_)))),
      function_body_([this] {
        std::string body(kChangeBody);
        Replace(body, "$schema", schema_);
        Replace(body, "$fence", fmt::format("1, {}", lock_space_));
        return body;
      }()),
      function_(fmt::format("change_{:08x}",
                            Crc32c(AsBytes(function_body_), Crc32c(AsBytes(kChangeHead))))) {}

// Locks of two 32-bit numbers never meet those of one of 64 bits, as keys have.
std::string PgSql::Fill(std::string_view text) const {
  std::string filled(text);
  Replace(filled, "$schema", schema_);
  Replace(filled, "$change", function_);
  Replace(filled, "$fence", fmt::format("1, {}", lock_space_));
  Replace(filled, "$making", fmt::format("2, {}", lock_space_));
  Replace(filled, "$layout", std::to_string(kPgLayout));
  Replace(filled, "$list_bytes", std::to_string(kPgListBytes));
  return filled;
}

std::string PgSql::Greeting() const { return std::string(kSettings) + Fill(kFacts); }

std::string PgSql::Make(std::string_view id) const {
  std::string text = Fill(kMake);
  Replace(text, "$id", Hex(AsBytes(id)));
  // Of characters that mean nothing in SQL: IsPlainName().
  Replace(text, "$cluster", cluster_);
  Replace(text, "$head", kChangeHead);
  Replace(text, "$body", fmt::format("$text${}$text$", function_body_));
  return text;
}

std::string PgSql::Store() const { return Fill(kStore); }

std::string PgSql::Text(PgStatement statement) const {
  switch (statement) {
    case PgStatement::kChange: return Fill(kChange);
    case PgStatement::kRead: return Fill(kRead);
    case PgStatement::kList:
    case PgStatement::kListReverse: {
      std::string text = Fill(kList);
      Replace(text, "$direction", statement == PgStatement::kList ? "ASC" : "DESC");
      return text;
    }
    case PgStatement::kSetVersion: return Fill(kSetVersion);
    case PgStatement::kLook: return Fill(kLook);
  }
  return "";
}

int64_t PgSql::LockOf(std::string_view key) const {
  const uint32_t space = static_cast<uint32_t>(lock_space_);
  const uint64_t high = Crc32c(AsBytes(key), space);
  const uint64_t low = Crc32(AsBytes(key), space);
  return static_cast<int64_t>(high << 32 | low);
}

}  // namespace pinstripe
