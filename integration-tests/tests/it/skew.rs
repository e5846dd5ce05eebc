//! One lane that cannot be published: the others go on, and the skew is there to see.

use async_nats::jetstream::stream::Config;
use likewise_proto::types::v1::LikeState::Liked;

use crate::agree;
use crate::world::{World, eventually, operation};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drill_03_a_lane_that_takes_nothing_holds_no_other_back_and_its_skew_is_seen() {
    let world = World::start().await;
    world.video("ava", "V1").await;
    let mut users = Vec::new();
    for number in 0..24 {
        users.push(world.user(&format!("u{number:02}")).await);
    }
    world.settled().await;
    let jetstream = async_nats::jetstream::new(async_nats::connect(&world.config.address.nats).await.unwrap());
    let name = format!("{}_REL_0_E0", world.config.stream_prefix);
    let limited = |max_messages| {
        let (jetstream, name) = (jetstream.clone(), name.clone());
        async move {
            let config = jetstream.get_stream(&name).await.unwrap().cached_info().config.clone();
            jetstream.update_stream(Config { max_messages, ..config }).await.unwrap();
        }
    };
    // The broker refuses the next message of this stream, as it does for one that has no room.
    let held = jetstream.get_stream(&name).await.unwrap().cached_info().state.messages;
    limited(i64::try_from(held).unwrap().max(1)).await;
    let mut away = 0;
    for user in &users {
        let answer = user.set("V1", Liked, &operation(), None).await.expect("commands do not wait for lanes");
        away += u64::from(answer.position.starts_with("r0."));
    }
    assert!(away >= 2, "some users are of the lane that is held");

    eventually("one lane lags, says why and since when, and no other does", async || {
        let board = world.board().await.map_err(|status| format!("{status:?}"))?;
        let lane = |name: &str| board.lanes.iter().find(|lane| lane.lane == name);
        let held = lane("rel-00").ok_or("no row")?;
        let skewed = held.published_seq < held.committed_seq
            && held.oldest_unpublished_at.is_some()
            && !held.last_error.is_empty();
        let others = ["rel-01", "rel-02", "rel-03"].into_iter().all(|name| {
            lane(name).is_some_and(|lane| {
                lane.published_seq == lane.committed_seq
                    && lane.last_error.is_empty()
                    && lane.projections.iter().all(|row| row.next_offset == lane.committed_seq() + 1)
            })
        });
        if skewed && others { Ok(()) } else { Err(format!("{board:?}")) }
    })
    .await;
    let shown = 24 - away;
    eventually("the number counts everybody else", async || {
        let counts = users[0].counts(&["V1"]).await.map_err(|status| format!("{status:?}"))?;
        let seen = counts[0].count.as_ref().and_then(|count| count.display);
        // What room there was is used up to the last message.
        if seen.is_some_and(|seen| (shown..24).contains(&seen)) { Ok(()) } else { Err(format!("{seen:?} of {shown}")) }
    })
    .await;

    limited(-1).await;
    world.settled().await;
    agree::check(&world).await;
}
