//! More than one PostgreSQL server: one that stops is nobody else's trouble.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use likewise_devstack::{Stack, StackSpec, TestStack};
use likewise_proto::command::v1::CommandOutcome;
use likewise_proto::types::v1::LikeState::{Liked, Unliked};
use tonic::Code;

use crate::crash::Load;
use crate::world::{Caller, World, eventually, operation, outcome};

const USERS: usize = 16;
const VIDEOS: usize = 5;

/// The shard that answered, as its position says.
fn shard(position: &str) -> u16 {
    position.trim_start_matches('r').split('.').next().expect("a shard").parse().expect("a number")
}

/// Users whose shards are on the first server, and those on the second.
async fn users(world: &World, stack: &Stack) -> (Vec<Caller>, Vec<Caller>) {
    let keys = TestStack::of(stack);
    let caller = |name: &str| world.with_token(name, Some(&keys.keys().mint_user(name)));
    let author = caller("ava");
    author.register().await;
    for number in 0..VIDEOS {
        world.publish(&author, &format!("V{number}")).await;
    }
    let (mut main, mut second) = (Vec::new(), Vec::new());
    for number in 0..USERS {
        let user = caller(&format!("u{number:02}"));
        user.register().await;
        let answer = user.set("V0", Liked, &operation(), None).await.expect("liked");
        if shard(&answer.position).is_multiple_of(2) { main.push(user) } else { second.push(user) }
    }
    assert!(!main.is_empty() && !second.is_empty(), "both servers have users");
    (main, second)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drill_16_one_server_stops_and_its_users_wait_while_the_others_go_on() {
    let spec = StackSpec { postgres_servers: 2, ..StackSpec::default() };
    let stack = tokio::task::spawn_blocking(move || Stack::start(spec)).await.expect("no panic").expect("a stack");
    let world = World::start_on(&stack, &[("LIKEWISE__COMMAND__SHARD_SERVERS", "[\"main\", \"second\"]")]).await;
    let (main, second) = users(&world, &stack).await;
    let everybody: Vec<Caller> = main.iter().chain(&second).cloned().collect();
    let load = Load::start(&everybody);
    tokio::time::sleep(Duration::from_millis(500)).await;

    let server = &stack.postgres()[1];
    tokio::task::block_in_place(|| server.kill());
    let (mut applied, mut waited) = (0, 0);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(4) {
        for user in &main {
            let state = if applied % 2 == 0 { Unliked } else { Liked };
            let answer = user.set("V0", state, &operation(), None).await.expect("nobody else's trouble");
            applied += usize::from(outcome(&answer).0 == CommandOutcome::Applied);
            assert_eq!(user.likes(&["V0", "V1"]).await.len(), 2);
        }
        for user in &second {
            let asked = Instant::now();
            let status = user.set("V0", Unliked, &operation(), None).await.expect_err("its server is away");
            assert!([Code::Unavailable, Code::Aborted].contains(&status.code()), "{status:?}");
            assert!(asked.elapsed() < Duration::from_secs(9), "and says so in time");
            waited += 1;
        }
    }
    assert!(applied > 0 && waited > 0, "{applied} {waited}");
    tokio::task::block_in_place(|| server.start()).expect("it starts again");

    for user in &second {
        let id = operation();
        eventually("everybody is served again", async || {
            user.set("V1", Liked, &id, None).await.map(|_| ()).map_err(|status| format!("{status:?}"))
        })
        .await;
    }
    let told = load.finish().await;
    let by_name: BTreeMap<&str, &Caller> = everybody.iter().map(|user| (user.name.as_str(), user)).collect();
    for ((name, id), verdict) in &told {
        let kept = by_name[name.as_str()].operation(id).await.expect("every verdict that was told stands");
        assert_eq!(kept.operation.as_ref(), Some(verdict), "{name} {id}");
    }
    numbers_are_the_hearts(&everybody).await;
    drop(world);
    tokio::task::spawn_blocking(move || stack.stop()).await.expect("stopped");
}

/// Every number is the sum of the hearts, once the projections have caught up.
async fn numbers_are_the_hearts(everybody: &[Caller]) {
    let videos: Vec<String> = (0..VIDEOS).map(|number| format!("V{number}")).collect();
    let videos: Vec<&str> = videos.iter().map(String::as_str).collect();
    eventually("numbers and hearts agree", async || {
        let mut hearts = vec![0; VIDEOS];
        let mut numbers = Vec::new();
        for user in everybody {
            let page = user.try_likes(&videos).await.map_err(|status| format!("{status:?}"))?;
            for (sum, like) in hearts.iter_mut().zip(&page) {
                *sum += u64::from(like.my_state() == Liked);
            }
            numbers = page.iter().map(|like| like.count.as_ref().and_then(|count| count.display)).collect();
        }
        let hearts: Vec<Option<u64>> = hearts.into_iter().map(Some).collect();
        if hearts == numbers { Ok(()) } else { Err(format!("{hearts:?} hearts, {numbers:?}")) }
    })
    .await;
}
