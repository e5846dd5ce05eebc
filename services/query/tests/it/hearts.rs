//! A page's hearts: committed relations, whatever the numbers say or do not say.

use futures::future::join_all;

use crate::rig::{Rig, refusal, told};

#[tokio::test]
async fn hearts_are_the_relations_and_never_follow_a_number() {
    let rig = Rig::new().await;
    rig.stand.relations("lin+3@V1=1 lin-4@V2=2 mei+1@V3=1");
    // Numbers that contradict every heart.
    for (video, raw) in [("V1", 0), ("V2", 9), ("V3", 0), ("V4", 5)] {
        rig.stand.row(video, raw, 0, 0);
        rig.view(1, video, [raw, 0, 0, raw], false).await;
    }
    assert_eq!(rig.user("lin").hearts("V1 V2 V3 V4").await, "V1+3 V2-4 V3-0 V4-0");
    assert_eq!(rig.user("mei").hearts("V1 V2 V3 V4").await, "V1-0 V2-0 V3+1 V4-0");
    rig.stand.relations("lin-4@V1=5");
    assert_eq!(rig.user("lin").hearts("V1").await, "V1-4", "the next read has the next state");
}

#[tokio::test]
async fn a_page_of_a_hundred_costs_one_call_for_hearts_and_keeps_order_and_repeats() {
    let rig = Rig::new().await;
    rig.stand.relations("lin+1@V7=1");
    assert_eq!(rig.user("lin").hearts("V9 V7 V9 V1 V7").await, "V9-0 V7+1 V9-0 V1-0 V7+1");
    let before = rig.stand.calls("facts");
    let page: Vec<String> = (0..100).map(|number| format!("V{number}")).collect();
    assert_eq!(rig.user("lin").likes(&page.join(" ")).await.expect("hearts").len(), 100);
    assert_eq!(rig.stand.calls("facts") - before, 1);
    assert!(!rig.stand.tell().without_token, "every call carries our token");
}

#[tokio::test]
async fn hearts_do_not_need_counter_redis_or_authority() {
    let rig = Rig::with(&[("REDIS__URL", "redis://127.0.0.1:1"), ("REDIS__COMMAND_TIMEOUT_MS", "100")]).await;
    rig.stand.relations("lin+1@V1=1");
    rig.stand.row("V1", 5, 0, 0);
    rig.stand.tell().away.extend(["counts", "progress"]);
    let answer = rig.user("lin").likes("V1").await.expect("hearts");
    assert_eq!(told(answer[0].count.as_ref().expect("a count")), "? VISIBLE STALE", "absent, not 0");
    assert_eq!(answer[0].relation_version, 1);
    rig.stand.tell().away.extend(["policy", "pairs"]);
    let answer = rig.user("mei").likes("V2").await.expect("hearts");
    assert_eq!(told(answer[0].count.as_ref().expect("a count")), "? UNSPECIFIED UNSPECIFIED");
}

#[tokio::test]
async fn a_heart_is_never_guessed() {
    let rig = Rig::new().await;
    rig.stand.relations("lin+1@V1=1");
    rig.stand.tell().forgotten.insert("V2".to_owned());
    assert_eq!(refusal(rig.user("lin").likes("V1 V2").await), "Unavailable FACTS_UNAVAILABLE", "a gap is no answer");
    rig.stand.tell().away.insert("facts");
    assert_eq!(refusal(rig.user("lin").likes("V1").await), "Unavailable FACTS_UNAVAILABLE");
    rig.stand.tell().away.clear();
    assert_eq!(rig.user("lin").hearts("V1").await, "V1+1");
}

#[tokio::test]
async fn a_counter_that_never_answers_is_asked_once_for_all_who_wait() {
    let changes =
        [("QUERY__CALL_TIMEOUT_MS", "500"), ("QUERY__PROGRESS_POLL_MS", "20000"), ("QUERY__FRESH_WINDOW_MS", "60000")];
    let rig = Rig::with(&changes).await;
    rig.stand.tell().hanging.extend(["progress", "counts"]);
    let callers: Vec<_> = (0..8).map(|number| rig.user(&format!("u{number}"))).collect();
    let videos: Vec<String> = (0..8).map(|number| format!("V{number}")).collect();
    let answers = join_all(callers.iter().zip(&videos).map(|(caller, video)| caller.likes(video))).await;
    for answer in answers {
        let likes = answer.expect("hearts");
        assert_eq!(told(likes[0].count.as_ref().expect("a count")), "? VISIBLE STALE");
    }
    assert_eq!(rig.stand.calls("progress"), 1, "nobody waits for the time-outs of others");
}

#[tokio::test]
async fn hearts_do_not_queue_behind_a_counter_that_hangs() {
    let changes = [("QUERY__CALL_TIMEOUT_MS", "500"), ("QUERY__COUNTER_CALLS_MAX", "1")];
    let rig = Rig::with(&changes).await;
    rig.stand.relations("lin+1@V3=1");
    rig.stand.tell().hanging.insert("counts");
    let lin = rig.user("lin");
    let videos: Vec<String> = (0..24).map(|number| format!("V{number}")).collect();
    let answers = join_all(videos.iter().map(|video| lin.hearts(video))).await;
    assert_eq!(answers[3], "V3+1");
    let calls = rig.stand.calls("counts");
    assert!(calls <= 6, "{calls} calls waited for one another");
}
