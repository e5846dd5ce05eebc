//! Consumers tell the publisher of their lane how far they are.

use std::sync::atomic::Ordering;

use likewise_domain::lane::Offset;

use super::toy::ToyUpstream;
use super::world::{World, wait};

/// Places that a consumer told since it registered; `None` while it is not registered.
async fn told(upstream: &ToyUpstream) -> Option<Vec<Offset>> {
    upstream.told.lock().expect("not poisoned").get("toy.g1").cloned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_registers_where_it_goes_on_and_reports_how_far_it_is() {
    let world = World::new().await;
    let mut process = world.process().await;
    let upstream = process.may_read_the_outbox();
    upstream.away.store(true, Ordering::SeqCst);
    let publisher = process.publish();
    let (_handle, _projection) = process.consume();
    let last = world.commit(50).await;
    publisher.wake();
    // A publisher that cannot be told stops nobody.
    world.wait_checkpoint(last + 1).await;
    assert_eq!(told(&upstream).await, None);
    upstream.away.store(false, Ordering::SeqCst);
    let here = |seq| Offset { epoch: 0, seq };
    wait("registered", || told(&upstream), |told| told.as_ref().is_some_and(|told| told.len() > 1)).await;
    assert_eq!(told(&upstream).await.and_then(|told| told.first().copied()), Some(here(last + 1)));
    let later = world.commit(7).await;
    publisher.wake();
    wait("reported", || told(&upstream), |told| told.as_ref().is_some_and(|told| told.ends_with(&[here(later + 1)])))
        .await;
    // Forgotten, because an operator let go of it or because it was silent for too long.
    upstream.told.lock().expect("not poisoned").clear();
    wait("registered again", || told(&upstream), Option::is_some).await;
    process.stop().await;

    // The next owner says anew where it goes on, also when that is earlier: the projection may have been put back.
    world.execute("update consumer_checkpoint set next_offset = 11, last_event_id = null").await;
    world.execute("delete from applied where seq > 10").await;
    let mut process = world.process().await;
    process.runtime.upstream = Some(upstream.clone());
    let (_handle, _projection) = process.consume();
    world.wait_checkpoint(later + 1).await;
    let reported = |told: &Option<Vec<Offset>>| told.as_ref().is_some_and(|told| told.ends_with(&[here(later + 1)]));
    wait("reported", || told(&upstream), reported).await;
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_owner_of_a_lane_speaks_for_it() {
    let world = World::new().await;
    let (mut owner, mut other) = (world.process().await, world.process().await);
    let (upstream, others) = (owner.may_read_the_outbox(), other.may_read_the_outbox());
    let _publisher = owner.publish();
    let (_handle, _projection) = owner.consume();
    wait("registered", || told(&upstream), Option::is_some).await;
    let (_waiting, _projection) = other.consume();
    let last = world.commit(5).await;
    world.wait_checkpoint(last + 1).await;
    assert_eq!(told(&others).await, None);
    owner.stop().await;
    wait("the next owner registers", || told(&others), Option::is_some).await;
    other.stop().await;
}
