//! Who belongs to which shard is written down once.

use likewise_command::StartError;
use likewise_devstack::TestStack;

use crate::authority::Authority;
use crate::rig::{Running, count, fresh_id};

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
