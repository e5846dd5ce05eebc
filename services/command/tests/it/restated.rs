//! Relations that are stated again after a lost tail.

use likewise_command::store::lock;
use likewise_devstack::TestConfig;
use likewise_proto::types::v1::LikeState::Liked;
use tokio_postgres::Client;

use crate::commands::started;
use crate::rig::{Running, count, told};

const EPOCH: i64 = 3 << 40;

async fn restate(sql: &Client, epoch: i32, pairs: &[(&str, &str)]) -> Result<i64, String> {
    let (users, videos): (Vec<&str>, Vec<&str>) = pairs.iter().copied().unzip();
    let text = "select restate_relations($1, $2, $3, $4, $5)";
    match sql.query_one(text, &[&lock::SHARD, &0_i32, &epoch, &users, &videos]).await {
        Ok(row) => Ok(row.get(0)),
        Err(error) => Err(error.as_db_error().map_or_else(String::new, |error| error.message().to_owned())),
    }
}

async fn enter(sql: &Client, status: &str, epoch: i32) {
    sql.execute("update shard_meta set status = $1, epoch = $2", &[&status, &epoch]).await.expect("entered");
}

/// State, version, cause, operation, version and reasons of the second axis.
async fn relation(sql: &Client, user: &str, video: &str) -> (i16, i64, i16, String, i64, i16) {
    let of = "select state, relation_version, cause, last_operation_id, hidden_version, hidden_reasons
              from like_relation where user_id = $1 and video_id = $2";
    let row = sql.query_one(of, &[&user, &video]).await.expect("a relation");
    (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4), row.get(5))
}

/// Lin likes V1 and took V2 back; the shard is being repaired in epoch 3.
async fn in_repair() -> (Running, Client, TestConfig) {
    let (running, sql, config) = started(&[("COMMAND__PUBLISHER", "false")]).await;
    let lin = running.as_user("lin");
    lin.like("op-1", "V1").await;
    lin.like("op-2", "V2").await;
    lin.unlike("op-3", "V2").await;
    enter(&sql, "REPAIRING", 3).await;
    (running, sql, config)
}

#[tokio::test]
async fn inv_03_inv_25_relations_keep_what_they_are_and_get_versions_above_all_that_were_published() {
    let (running, sql, _config) = in_repair().await;
    let pairs = [("lin", "V1"), ("lin", "V2"), ("gone", "V1"), ("lin", "V1")];
    assert_eq!(restate(&sql, 3, &pairs).await, Ok(3), "a pair that is named twice is one relation");
    assert_eq!(relation(&sql, "lin", "V1").await, (1, EPOCH + 1, 1, "op-1".to_owned(), EPOCH + 1, 0));
    assert_eq!(relation(&sql, "lin", "V2").await, (2, EPOCH + 1, 1, "op-3".to_owned(), EPOCH + 1, 0));
    let tombstone = relation(&sql, "gone", "V1").await;
    assert_eq!(tombstone, (2, EPOCH + 1, 5, "lw:restate.3".to_owned(), EPOCH + 1, 0), "the facts have no trace of it");

    // Every statement is an event like any other, with a number of its own.
    let of = "(select seq, row_number() over (order by seq) as place from outbox) as numbered where seq <> place";
    assert_eq!(count(&sql, of).await, 0);
    let of = "outbox where epoch = 3 and cause = 5 and relation_version > 3::bigint << 40 and state = previous_state";
    assert_eq!(count(&sql, of).await, 3);
    let of =
        "outbox o join like_relation r using (user_id, video_id) where o.seq = r.state_seq and o.seq = r.hidden_seq
              and r.state_epoch = 3 and r.hidden_epoch = 3 and o.relation_version = r.relation_version";
    assert_eq!(count(&sql, of).await, 3, "each is the source of its relation");

    // The same once more, as a repair does that was killed; then the shard serves, and users go on above it.
    assert_eq!(restate(&sql, 3, &pairs).await, Ok(3));
    assert_eq!(relation(&sql, "lin", "V1").await.1, EPOCH + 2);
    enter(&sql, "SERVING", 3).await;
    let lin = running.as_user("lin");
    let answer = lin.unlike("op-4", "V1").await;
    assert_eq!(told(&answer), format!("APPLIED UNLIKED v{}, now UNLIKED v{}", EPOCH + 3, EPOCH + 3));
    let answer = running.as_user("gone").like("op-5", "V1").await;
    assert_eq!(told(&answer), format!("APPLIED LIKED v{}, now LIKED v{}", EPOCH + 3, EPOCH + 3));
    let answer = running.as_user("new").like("op-6", "V1").await;
    assert_eq!(told(&answer), format!("APPLIED LIKED v{}, now LIKED v{}", EPOCH + 1, EPOCH + 1), "whoever is new too");
}

#[tokio::test]
async fn inv_25_whether_a_like_counts_is_stated_as_it_is_now() {
    let (_running, sql, _config) = in_repair().await;
    sql.batch_execute("insert into risk_state (kind, user_id, video_id, act_id) values (1, 'lin', 'V1', 'a')")
        .await
        .expect("an act whose sweep was lost");
    assert_eq!(restate(&sql, 3, &[("lin", "V1")]).await, Ok(1));
    assert_eq!(relation(&sql, "lin", "V1").await, (1, EPOCH + 1, 1, "op-1".to_owned(), EPOCH + 1, 1));
    let of = "outbox where epoch = 3 and hidden_reasons = 1 and previous_hidden_reasons = 0";
    assert_eq!(count(&sql, of).await, 1);
}

#[tokio::test]
async fn inv_25_nothing_is_stated_again_outside_the_repair_of_that_epoch() {
    let (_running, sql, _config) = in_repair().await;
    let refused = |epoch| Err(format!("the shard is not being repaired in epoch {epoch}"));
    assert_eq!(restate(&sql, 2, &[("lin", "V1")]).await, refused(2));
    for status in ["SERVING", "MOVED"] {
        enter(&sql, status, 3).await;
        assert_eq!(restate(&sql, 3, &[("lin", "V1")]).await, refused(3));
    }
    assert_eq!(relation(&sql, "lin", "V1").await, (1, 1, 1, "op-1".to_owned(), 0, 0));
    assert_eq!(count(&sql, "outbox").await, 3);
}

#[tokio::test]
async fn inv_25_the_writer_refuses_while_the_shard_is_repaired() {
    let (running, sql, _config) = in_repair().await;
    let lin = running.as_user("lin");
    let status = lin.set("op-9", "V1", Liked).await.expect_err("the shard takes no changes");
    assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
    assert_eq!(count(&sql, "outbox").await, 3);
    enter(&sql, "SERVING", 3).await;
    assert_eq!(
        told(&lin.unlike("op-9", "V1").await),
        format!("APPLIED UNLIKED v{}, now UNLIKED v{}", EPOCH + 1, EPOCH + 1)
    );
}
