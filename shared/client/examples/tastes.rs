//! Keeps what everybody likes, newest first, in a database of one's own: `tastes(user_id, video_id)`.
//!
//! `cargo dev up` prints what to set; then: `cargo run -p likewise-client --features consumer --example tastes`

use likewise_client::consumer::{BoxError, Change, Consumer, Fold, Settings, Transaction};

struct Tastes;

impl Fold for Tastes {
    const TABLES: &'static str = "create table if not exists taste (
        user_id text, video_id text, version bigint not null, state smallint not null, since timestamptz not null,
        primary key (user_id, video_id))";

    async fn fold(&self, transaction: &Transaction<'_>, changes: &[Change]) -> Result<(), BoxError> {
        let users: Vec<&str> = changes.iter().map(|change| change.user_id.as_str()).collect();
        let videos: Vec<&str> = changes.iter().map(|change| change.video_id.as_str()).collect();
        let versions: Vec<i64> = changes.iter().map(|change| change.version.cast_signed()).collect();
        let states: Vec<i16> = changes.iter().map(|change| change.state.code()).collect();
        let since: Vec<_> = changes.iter().map(|change| change.since).collect();
        // One row for each relation, the highest version of it; whoever holds a higher one keeps it.
        let statement = "insert into taste as held
            select distinct on (1, 2) * from unnest($1::text[], $2::text[], $3::bigint[], $4::smallint[], $5::timestamptz[])
            order by 1, 2, 3 desc
            on conflict (user_id, video_id) do update
            set version = excluded.version, state = excluded.state, since = excluded.since
            where held.version < excluded.version";
        let statement = transaction.prepare_cached(statement).await?;
        transaction.execute(&statement, &[&users, &videos, &versions, &states, &since]).await?;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let consumer = Consumer::start(Settings::from_env()?, Tastes).await?;
    tokio::signal::ctrl_c().await?;
    for lane in consumer.progress().await {
        println!("{}: {} {}, next {}", lane.lane, lane.status, lane.last_error, lane.next_offset);
    }
    consumer.stop().await;
    Ok(())
}
