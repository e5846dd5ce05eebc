//! Every place that knows something of a like, compared with every other: by SQL, on the broker, and through the RPCs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use fred::prelude::{ClientLike, KeysInterface};
use tokio_postgres::Client;

use crate::world::{World, eventually};

const SHARDS: u16 = 4;
const LIKED: i16 = 1;
const PARTITIONS: [&str; 2] = ["counter_p00", "counter_p01"];
const PARTS: [&str; 2] = ["reverse_p00", "reverse_p01"];

/// User and video.
pub type Pair = (String, String);
/// State and version.
pub type Known = (i16, i64);

/// A committed change, as the outbox holds it.
struct Change {
    seq: i64,
    event_id: uuid::Uuid,
    pair: Pair,
    known: Known,
    previous: i16,
    operation: String,
    /// The relation changed, and not its second axis alone.
    of_relation: bool,
}

/// All relations as the facts have them.
pub async fn relations(world: &World) -> BTreeMap<Pair, Known> {
    let sql = world.facts().await;
    let mut all = BTreeMap::new();
    for shard in 0..SHARDS {
        all.extend(relations_of(&sql, shard).await);
    }
    all
}

async fn relations_of(sql: &Client, shard: u16) -> BTreeMap<Pair, Known> {
    let of = format!("select user_id, video_id, state, relation_version from relation_{shard:02}.like_relation");
    let rows = sql.query(&of, &[]).await.unwrap();
    rows.iter().map(|row| ((row.get(0), row.get(1)), (row.get(2), row.get(3)))).collect()
}

/// In which bucket each relation is counted.
pub async fn vbuckets(world: &World) -> BTreeMap<Pair, i32> {
    let sql = world.sql().await;
    let mut all = BTreeMap::new();
    for schema in PARTITIONS {
        let of = format!("select user_id, video_id, vbucket from {schema}.like_count_projection");
        for row in sql.query(&of, &[]).await.unwrap() {
            let earlier = all.insert((row.get(0), row.get(1)), row.get(2));
            assert_eq!(earlier, None, "one relation on two partitions");
        }
    }
    all
}

/// Empties the test's own keys in Redis: everything the product ever wrote there.
pub async fn forget_redis(world: &World) {
    let config = fred::types::config::Config::from_url(&world.config.address.redis).unwrap();
    let redis = fred::clients::Client::new(config, None, None, None);
    redis.init().await.unwrap();
    let pattern = format!("{}*", world.config.redis_prefix);
    let (_, keys): (String, Vec<String>) =
        redis.scan_page("0", pattern, Some(1_000_000), None).await.expect("keys are listed");
    assert!(!keys.is_empty(), "there was something to forget");
    let _: i64 = redis.del(keys).await.unwrap();
    redis.quit().await.unwrap();
}

/// Two tables are equal; what differs is all that is shown.
fn same<K: Ord + Debug, V: PartialEq + Debug>(what: &str, seen: &BTreeMap<K, V>, expected: &BTreeMap<K, V>) {
    let keys: BTreeSet<&K> = seen.keys().chain(expected.keys()).collect();
    let differs = |key: &&K| seen.get(key) != expected.get(key);
    let findings: Vec<String> = keys
        .into_iter()
        .filter(differs)
        .map(|key| format!("{key:?}: seen {:?}, expected {:?}", seen.get(key), expected.get(key)))
        .collect();
    assert!(findings.is_empty(), "{what}:\n  {}", findings.join("\n  "));
}

/// Compares everything. The world must be settled.
pub async fn check(world: &World) {
    let sql = world.sql().await;
    let jetstream = async_nats::jetstream::new(async_nats::connect(&world.config.address.nats).await.unwrap());
    let mut facts = BTreeMap::new();
    for shard in 0..SHARDS {
        let relations = relations_of(&sql, shard).await;
        let changes = changes(&sql, shard).await;
        outbox_explains_relations(shard, &relations, &changes);
        let stream = format!("{}_REL_{shard}_E0", world.config.stream_prefix);
        let events: Vec<_> = changes.iter().map(|change| change.event_id).collect();
        stream_equals_outbox(&jetstream, &stream, &events).await;
        operations_equal_outbox(&sql, shard, &changes).await;
        facts.extend(relations);
    }
    let content: Vec<uuid::Uuid> = {
        let rows = sql.query("select seq, event_id from content.outbox order by seq", &[]).await.unwrap();
        for (row, expected) in rows.iter().zip(1_i64..) {
            assert_eq!(row.get::<_, i64>(0), expected, "the numbers of content are dense");
        }
        rows.iter().map(|row| row.get(1)).collect()
    };
    stream_equals_outbox(&jetstream, &format!("{}_CONTENT_0_E0", world.config.stream_prefix), &content).await;
    check_copies(world, &facts).await;
}

/// Compares what was made from the facts with them. The world must be settled.
pub async fn check_copies(world: &World, facts: &BTreeMap<Pair, Known>) {
    let sql = world.sql().await;
    counter_equals_facts(&sql, facts).await;
    reverse_equals_facts(&sql, facts).await;
    answers_equal_facts(world, facts).await;
}

async fn changes(sql: &Client, shard: u16) -> Vec<Change> {
    let of = format!(
        "select seq, event_id, user_id, video_id, state, relation_version, previous_state, operation_id, kind \
         from relation_{shard:02}.outbox order by seq"
    );
    let rows = sql.query(&of, &[]).await.unwrap();
    let change = |row: &tokio_postgres::Row| Change {
        seq: row.get(0),
        event_id: row.get(1),
        pair: (row.get(2), row.get(3)),
        known: (row.get(4), row.get(5)),
        previous: row.get(6),
        operation: row.get(7),
        of_relation: row.get::<_, i16>(8) == 1,
    };
    rows.iter().map(change).collect()
}

/// Numbers are dense, each relation's versions count up from 1 without a hole and flip the state, and the last of them is
/// the relation.
fn outbox_explains_relations(shard: u16, relations: &BTreeMap<Pair, Known>, changes: &[Change]) {
    let mut last: BTreeMap<Pair, Known> = BTreeMap::new();
    for (change, expected) in changes.iter().zip(1_i64..) {
        assert_eq!(change.seq, expected, "the numbers of shard {shard} are dense");
        let (state, version) = last.get(&change.pair).copied().unwrap_or((2, 0));
        if !change.of_relation {
            assert_eq!(change.known, (state, version), "{:?}: a change of the second axis alone", change.pair);
            continue;
        }
        assert_eq!(change.known.1, version + 1, "{:?}: versions have no hole", change.pair);
        assert_ne!(change.known.0, state, "{:?} v{}: every change changes the state", change.pair, version + 1);
        assert!(version == 0 || change.previous == state, "{:?} v{}: the state before", change.pair, version + 1);
        last.insert(change.pair.clone(), change.known);
    }
    same(&format!("the last change of each relation of shard {shard} is the relation"), &last, relations);
}

/// Message n of the stream is event n of the outbox, and there is nothing else.
async fn stream_equals_outbox(jetstream: &async_nats::jetstream::Context, name: &str, events: &[uuid::Uuid]) {
    let stream = jetstream.get_stream(name).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    let state = stream.get_info().await.unwrap().state;
    assert_eq!(state.last_sequence, events.len() as u64, "{name}: as many messages as events");
    assert_eq!(state.messages, events.len() as u64, "{name}: no message is missing");
    for (event, sequence) in events.iter().zip(1_u64..) {
        let message = stream.get_raw_message(sequence).await.unwrap();
        let id = message.headers.get("Likewise-Event-Id").map(|value| value.as_str().to_owned());
        assert_eq!(id, Some(event.to_string()), "{name} at {sequence}");
    }
}

/// An operation was applied exactly if the outbox has its change.
async fn operations_equal_outbox(sql: &Client, shard: u16, changes: &[Change]) {
    let of = format!("select user_id, operation_id from relation_{shard:02}.like_command where outcome = 1");
    let rows = sql.query(&of, &[]).await.unwrap();
    let applied: BTreeSet<Pair> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(applied.len(), rows.len(), "an operation has one verdict");
    let changes = changes.iter().filter(|change| change.of_relation);
    let changed: BTreeSet<Pair> =
        changes.clone().map(|change| (change.pair.0.clone(), change.operation.clone())).collect();
    assert_eq!(changed.len(), changes.count(), "an operation makes one change");
    assert_eq!(applied, changed, "verdicts and changes of shard {shard}");
}

/// Projection rows, buckets and display rows follow from the facts.
async fn counter_equals_facts(sql: &Client, facts: &BTreeMap<Pair, Known>) {
    let (mut projected, mut liked) = (BTreeMap::new(), BTreeMap::<(String, i32), i64>::new());
    let mut counted = BTreeMap::<(String, i32), i64>::new();
    for schema in PARTITIONS {
        let of = format!("select user_id, video_id, state, version, vbucket from {schema}.like_count_projection");
        for row in sql.query(&of, &[]).await.unwrap() {
            let (pair, known): (Pair, Known) = ((row.get(0), row.get(1)), (row.get(2), row.get(3)));
            if known.0 == LIKED {
                *liked.entry((pair.1.clone(), row.get(4))).or_default() += 1;
            }
            projected.insert(pair, known);
        }
        let of = format!("select video_id, vbucket, active_count from {schema}.video_like_count_vbucket");
        for row in sql.query(&of, &[]).await.unwrap() {
            let count: i64 = row.get(2);
            if count != 0 {
                counted.insert((row.get(0), row.get(1)), count);
            }
        }
    }
    same("the counter's relations are the facts", &projected, facts);
    same("buckets hold what their relations say", &counted, &liked);

    let rows = sql.query("select video_id, raw, display from counter.count_display_snapshot", &[]).await.unwrap();
    let shown: BTreeMap<String, i64> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    for row in &rows {
        assert_eq!(row.get::<_, i64>(1), row.get::<_, i64>(2), "nothing is hidden");
    }
    let mut sums: BTreeMap<String, i64> = facts.keys().map(|pair| (pair.1.clone(), 0)).collect();
    for ((video, _), count) in counted {
        *sums.entry(video).or_default() += count;
    }
    same("display rows are the sums of the buckets", &shown, &sums);
}

/// Rows of the lists, and their order rows, follow from the facts.
async fn reverse_equals_facts(sql: &Client, facts: &BTreeMap<Pair, Known>) {
    let (mut projected, mut ordered) = (BTreeMap::new(), BTreeSet::new());
    for schema in PARTS {
        let of = format!("select user_id, video_id, state, version from {schema}.like_reverse_projection");
        for row in sql.query(&of, &[]).await.unwrap() {
            projected.insert((row.get(0), row.get(1)), (row.get(2), row.get(3)));
        }
        let of = format!(
            "select o.user_id, o.video_id, o.liked_at = p.current_liked_at from {schema}.like_reverse_order o \
             left join {schema}.like_reverse_projection p using (generation, video_id, user_id)"
        );
        for row in sql.query(&of, &[]).await.unwrap() {
            let pair: Pair = (row.get(0), row.get(1));
            assert_eq!(
                row.get::<_, Option<bool>>(2),
                Some(true),
                "{pair:?}: the place in the list is the time of the like"
            );
            assert!(ordered.insert(pair.clone()), "{pair:?} stands twice in a list");
        }
    }
    same("the reverse index's relations are the facts", &projected, facts);
    let liked: BTreeSet<Pair> =
        facts.iter().filter(|(_, known)| known.0 == LIKED).map(|(pair, _)| pair.clone()).collect();
    assert_eq!(ordered, liked, "lists hold who likes");
}

/// What users are told follows from the facts.
async fn answers_equal_facts(world: &World, facts: &BTreeMap<Pair, Known>) {
    let videos: BTreeSet<&String> = facts.keys().map(|pair| &pair.1).collect();
    let reader = world.user("reader").await;
    for video in videos {
        let likers: BTreeSet<String> = facts
            .iter()
            .filter(|(pair, known)| pair.1 == *video && known.0 == LIKED)
            .map(|(pair, _)| pair.0.clone())
            .collect();
        let listed = reader.all_likers(video, 7).await;
        assert_eq!(listed.len(), likers.len(), "{video}: nobody is listed twice");
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), likers, "{video}: the list is who likes");
        let expected = Some(likers.len() as u64);
        eventually("the number on the page is the number of likers", async || {
            let page = reader.likes(&[video]).await;
            let shown = page[0].count.as_ref().and_then(|count| count.display);
            if shown == expected { Ok(()) } else { Err(format!("{video}: {shown:?}, likers {expected:?}")) }
        })
        .await;
    }
    let users: BTreeSet<&String> = facts.keys().map(|pair| &pair.0).collect();
    for user in users {
        let mine: BTreeSet<String> =
            world.user(user).await.all_my_likes(5).await.into_iter().map(|like| like.video_id).collect();
        let expected: BTreeSet<String> = facts
            .iter()
            .filter(|(pair, known)| pair.0 == *user && known.0 == LIKED)
            .map(|(pair, _)| pair.1.clone())
            .collect();
        assert_eq!(mine, expected, "{user}: my likes");
    }
}
