//! Leases by the clock of the database.

use std::time::Duration;

use likewise_kit::lease::Lease;
use uuid::Uuid;

use super::world::{World, wait};

const TTL: Duration = Duration::from_millis(900);

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_has_one_owner_and_its_epoch_grows_with_every_owner() {
    let world = World::new().await;
    let (one, two) = (Uuid::new_v4(), Uuid::new_v4());
    let acquire = |owner| Lease::acquire(&world.pool, "l", owner, TTL);
    let first = acquire(one).await.expect("asked").expect("free");
    assert_eq!(first.epoch(), 1);
    assert!(acquire(two).await.expect("asked").is_none());
    let same = acquire(one).await.expect("asked").expect("its own");
    assert_eq!(same.epoch(), 1);
    drop(same);
    first.release().await.expect("released");
    let second = acquire(two).await.expect("asked").expect("free again");
    assert_eq!(second.epoch(), 2);
    second.release().await.expect("released");
    let again = acquire(two).await.expect("asked").expect("free again");
    assert_eq!(again.epoch(), 3, "a late owner is a new one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_renewed_while_it_is_held_and_expires_when_it_is_dropped() {
    let world = World::new().await;
    let lease = Lease::acquire(&world.pool, "l", Uuid::new_v4(), TTL).await.expect("asked").expect("free");
    let since = "select (extract(epoch from clock_timestamp() - pg_postmaster_start_time()) * 1000)::bigint";
    let start = world.number(since).await;
    wait("three lives", || world.number(since), |now| *now > start + 2_700).await;
    assert!(!lease.lost().is_cancelled());
    assert_eq!(world.number("select count(*) from lease where expires_at > clock_timestamp()").await, 1);
    drop(lease);
    let expired = || world.number("select count(*) from lease where expires_at <= clock_timestamp()");
    wait("expiry", expired, |count| *count == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_was_taken_over_is_lost() {
    let world = World::new().await;
    let lease = Lease::acquire(&world.pool, "l", Uuid::new_v4(), TTL).await.expect("asked").expect("free");
    world.execute("update lease set owner = gen_random_uuid(), epoch = epoch + 1").await;
    tokio::time::timeout(TTL, lease.lost().cancelled()).await.expect("told within its life");
    // Releasing what is not ours any more leaves it to its owner.
    lease.release().await.expect("asked");
    assert_eq!(world.number("select count(*) from lease where expires_at > clock_timestamp()").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_lost_when_the_database_does_not_renew_it_in_time() {
    let world = World::new().await;
    let lease = Lease::acquire(&world.pool, "l", Uuid::new_v4(), TTL).await.expect("asked").expect("free");
    // A renewal waits for this lock longer than the lease lives.
    let mut client = world.pool.get().await.expect("PostgreSQL");
    let transaction = client.transaction().await.expect("begun");
    transaction.batch_execute("lock table lease in access exclusive mode").await.expect("locked");
    tokio::time::timeout(TTL * 2, lease.lost().cancelled()).await.expect("told when its life was over");
    transaction.rollback().await.expect("rolled back");
}
