//! Who belongs to which shard is written down once; and a shard's partitions reach ahead, or it is seen.

use likewise_command::StartError;
use likewise_devstack::TestStack;

use crate::authority::Authority;
use crate::commands::started;
use crate::rig::{Running, count, eventually, fresh_id};

#[tokio::test]
async fn inv_15_settings_that_disagree_with_what_is_stored_refuse_to_start() {
    let config = TestStack::get().config().await;
    let policy = ("ENDPOINTS__POLICY", "http://127.0.0.1:1");
    Running::start(&config, &[policy]).await.stop().await;
    for other in [("COMMAND__SHARDS", "5"), ("COMMAND__HASH_SEED", "7")] {
        let refused = Running::try_start(&config, &[policy, other]).await;
        assert!(matches!(refused, Err(StartError::Store(_))), "{other:?}");
    }
    Running::start(&config, &[policy]).await.stop().await;
}

#[tokio::test]
async fn users_are_spread_and_each_stays_in_its_shard() {
    let authority = Authority::default();
    authority.publish("V1");
    authority.publish("V2");
    let endpoint = authority.serve().await;
    let config = TestStack::get().config().await;
    let running = Running::start(&config, &[("ENDPOINTS__POLICY", &endpoint)]).await;
    for number in 0..40 {
        let person = running.as_user(&format!("u{number}"));
        person.like(&fresh_id(), "V1").await;
        person.like(&fresh_id(), "V2").await;
    }
    let sql = config.database.connect().await.expect("connected");
    let mut people = 0;
    for shard in 0..4 {
        let of = format!("(select distinct user_id from relation_{shard:02}.like_relation) as users");
        let here = count(&sql, &of).await;
        assert!(here > 0, "shard {shard} has users");
        let of = format!("relation_{shard:02}.like_relation");
        assert_eq!(count(&sql, &of).await, 2 * here, "both relations of a user are in one shard");
        people += here;
    }
    assert_eq!(people, 40);
    running.stop().await;
}

/// The last partition of operations goes, and something stands where the next would be made.
const TAKE_THE_LAST_WEEK: &str = "do $$
declare week text := (
    select max(c.relname) from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'like_command'::regclass);
begin
    execute format('drop table %I', week);
    execute format('create table %I ()', week);
end $$";

#[tokio::test]
async fn scn_i11_partitions_that_are_not_made_are_seen_to_end() {
    let (running, sql, _config) = started(&[("COMMAND__MAINTENANCE_INTERVAL_MS", "20")]).await;
    let days_ahead = || {
        let text = running.context.metrics.encode();
        let line =
            text.lines().find(|line| line.starts_with("likewise_command_operation_days_ahead{")).map(str::to_owned);
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
    };
    let before = eventually("the horizon is told", async || days_ahead().ok_or(())).await;
    assert!(before >= 56.0, "{before} days, less than two months");
    sql.batch_execute(TAKE_THE_LAST_WEEK).await.expect("taken");
    eventually("the horizon comes nearer", async || match days_ahead() {
        Some(days) if days < before - 6.0 => Ok(()),
        seen => Err(seen),
    })
    .await;
    running.as_user("lin").like(&fresh_id(), "V1").await;
}
