//! Numbers: where they come from, how current they are, and who sees how much of them.

use std::collections::BTreeSet;

use futures::future::join_all;
use likewise_devstack::TestStack;
use likewise_proto::convert::timestamp;
use likewise_proto::policy::v1::{VideoStatus, VideoVisibility};
use likewise_proto::query::v1::BatchGetCountsRequest;
use time::{Duration, OffsetDateTime};

use crate::rig::{Rig, eventually, ids, keys, refusal};
use crate::stand::AUTHOR;
use crate::wire::Wire;

#[tokio::test]
async fn a_view_answers_and_what_is_no_whole_view_is_asked_of_the_counter() {
    let rig = Rig::new().await;
    let lin = rig.user("lin");
    rig.stand.row("V1", 50, 0, 0);
    rig.stand.row("V2", 60, 0, 0);
    rig.view(1, "V1", [9, 1, 2, 6], false).await;
    rig.view(1, "V2", [9, 1, 2, 7], false).await;
    assert_eq!(lin.counts("V1").await, "6 VISIBLE FRESH");
    assert_eq!(rig.stand.calls("counts"), 0, "the view was enough");
    assert_eq!(lin.counts("V2 V1 V2 V3").await, "60 VISIBLE FRESH, 6 VISIBLE FRESH, 60 VISIBLE FRESH, 0 VISIBLE FRESH");
    assert_eq!(rig.stand.calls("counts"), 1, "one call for all that was missing");
}

#[tokio::test]
async fn case_16_views_of_another_generation_are_not_read() {
    let rig = Rig::new().await;
    rig.view(1, "V1", [9, 0, 0, 9], false).await;
    rig.stand.row("V1", 50, 0, 0);
    rig.stand.tell().progress.generation = 2;
    assert_eq!(rig.user("lin").counts("V1").await, "50 VISIBLE FRESH");
    rig.view(2, "V1", [51, 0, 0, 51], false).await;
    eventually("the view of the new generation", async || match rig.user("lin").counts("V1").await {
        text if text == "51 VISIBLE FRESH" => Ok(()),
        text => Err(text),
    })
    .await;
}

#[tokio::test]
async fn inv_08_an_emptied_redis_loses_no_number() {
    let rig = Rig::new().await;
    rig.stand.row("V1", 50, 3, 2);
    rig.view(1, "V1", [49, 3, 2, 44], false).await;
    assert_eq!(rig.user("lin").counts("V1").await, "44 VISIBLE FRESH");
    rig.forget_view("V1").await;
    eventually("the counter answers", async || match rig.user("lin").counts("V1").await {
        text if text == "45 VISIBLE FRESH" => Ok(()),
        text => Err(text),
    })
    .await;
}

#[tokio::test]
async fn inv_08_while_redis_is_down_the_counter_answers() {
    let wire = Wire::to(TestStack::get().redis_url()).await;
    let rig =
        Rig::with(&[("REDIS__URL", &wire.url), ("REDIS__COMMAND_TIMEOUT_MS", "300"), ("QUERY__REDIS_PAUSE_MS", "1")])
            .await;
    rig.stand.row("V1", 50, 0, 0);
    rig.view(1, "V1", [49, 0, 0, 49], false).await;
    let lin = rig.user("lin");
    eventually("the view, through the wire", async || match lin.counts("V1").await {
        text if text == "49 VISIBLE FRESH" => Ok(()),
        text => Err(text),
    })
    .await;
    wire.cut();
    eventually("the counter answers", async || match lin.counts("V1").await {
        text if text == "50 VISIBLE FRESH" => Ok(()),
        text => Err(text),
    })
    .await;
    let crowd: Vec<_> = (0..16).map(|number| rig.user(&format!("u{number}"))).collect();
    for answer in join_all(crowd.iter().map(|caller| caller.try_counts("V1 V2"))).await {
        assert_eq!(answer.expect("counts"), "50 VISIBLE FRESH, 0 VISIBLE FRESH");
    }
}

#[tokio::test]
async fn an_unknown_count_is_absent_and_never_zero() {
    let rig = Rig::new().await;
    rig.stand.row("V1", 5, 0, 0);
    rig.stand.tell().forgotten.insert("V2".to_owned());
    assert_eq!(rig.user("lin").counts("V1 V2").await, "5 VISIBLE FRESH, ? VISIBLE STALE");
    rig.stand.tell().away.insert("counts");
    let lin = rig.user("lin");
    // What this process remembers ages within moments.
    let answer = eventually("nothing is known", async || match lin.try_counts("V1 V2").await {
        Err(status) => Ok(status),
        Ok(text) => Err(text),
    })
    .await;
    assert_eq!(refusal::<()>(Err(answer)), "Unavailable COUNTER_UNAVAILABLE");
    rig.view(1, "V1", [7, 0, 0, 7], false).await;
    assert_eq!(lin.counts("V1 V2").await, "7 VISIBLE FRESH, ? VISIBLE STALE", "the part that is known");
}

#[tokio::test]
async fn a_number_says_how_current_it_is_by_what_the_counter_covers() {
    let rig = Rig::new().await;
    rig.stand.row("V1", 5, 0, 0);
    rig.view(1, "V2", [6, 0, 0, 6], true).await;
    let lin = rig.user("lin");
    assert_eq!(lin.counts("V1 V2").await, "5 VISIBLE FRESH, 6 VISIBLE APPROXIMATE");
    let told = async |expected: &str| {
        eventually(expected, async || match lin.counts("V1").await {
            text if text == expected => Ok(()),
            text => Err(text),
        })
        .await;
    };
    rig.stand.tell().progress.covered_until = Some(timestamp(OffsetDateTime::now_utc() - Duration::minutes(1)));
    told("5 VISIBLE STALE").await;
    rig.stand.tell().progress.covered_until = None;
    told("5 VISIBLE STALE").await;
    rig.stand.tell().progress.incomplete = true;
    told("5 VISIBLE APPROXIMATE").await;
    rig.stand.tell().progress.incomplete = false;
    rig.stand.tell().progress.covered_until = Some(timestamp(OffsetDateTime::now_utc()));
    told("5 VISIBLE FRESH").await;
}

#[tokio::test]
async fn a_number_says_whether_it_covers_the_callers_own_change() {
    let rig = Rig::new().await;
    rig.view(1, "V1", [5, 0, 0, 5], false).await;
    rig.view(1, "V2", [5, 0, 0, 5], true).await;
    let lin = rig.user("lin");
    // The next offset of rel-02 is 0/10.
    for (position, video, expected) in [
        (Some("r2.0.9"), "V1", Some(true)),
        (Some("r2.0.10"), "V1", Some(false)),
        (Some("r2.1.1"), "V1", Some(false)),
        (Some("r3.0.1"), "V1", Some(false)),
        (Some("r2.0.9"), "V2", Some(false)),
        (None, "V1", None),
    ] {
        let message = BatchGetCountsRequest { video_ids: ids(video), position: position.map(str::to_owned) };
        let counts = lin.ask_counts(message).await.expect("counts");
        assert_eq!(counts[0].count.as_ref().expect("a count").covers_position, expected, "{position:?} of {video}");
    }
}

#[tokio::test]
async fn inv_23_each_caller_sees_what_todays_rules_let_them_see() {
    let rig = Rig::with(&[("AUTH__ANONYMOUS_COUNTS", "true")]).await;
    rig.stand.row("V1", 9, 1, 2);
    let (lin, author) = (rig.user("lin"), rig.user(AUTHOR));
    let service = rig.caller(Some(keys().mint_service("content")));
    let nobody = rig.caller(None);
    let seen = async |expected: [&str; 4]| {
        eventually("everybody's view", async || {
            let found = [
                lin.counts("V1").await,
                author.counts("V1").await,
                service.counts("V1").await,
                nobody.counts("V1").await,
            ];
            if found == expected { Ok(()) } else { Err(found) }
        })
        .await;
    };
    let (number, all) = ("6 VISIBLE FRESH", "6 of 9-1-2 VISIBLE FRESH");
    seen([number, number, all, number]).await;
    rig.stand.video("V1", |video| video.count_visible = false);
    let hidden = "? HIDDEN_BY_AUTHOR UNSPECIFIED";
    seen([hidden, number, all, hidden]).await;
    rig.stand.video("V1", |video| {
        video.count_visible = true;
        video.visibility = VideoVisibility::Friends.into();
    });
    let unseen = "? NOT_VISIBLE UNSPECIFIED";
    seen([unseen, number, all, unseen]).await;
    rig.stand.tell().friends.insert(("lin".to_owned(), AUTHOR.to_owned()));
    seen([number, number, all, unseen]).await;
    rig.stand.tell().blocked.insert(("lin".to_owned(), AUTHOR.to_owned()));
    seen([unseen, number, all, unseen]).await;
    rig.stand.video("V1", |video| {
        video.visibility = VideoVisibility::Public.into();
        video.status = VideoStatus::Deleted.into();
    });
    let gone = "? VIDEO_GONE UNSPECIFIED";
    seen([unseen, gone, gone, gone]).await;
}

#[tokio::test]
async fn inv_23_without_the_authority_no_number_leaves() {
    let rig = Rig::new().await;
    rig.stand.row("V1", 9, 1, 2);
    for question in ["policy", "pairs"] {
        rig.stand.tell().away.insert(question);
        assert_eq!(refusal(rig.user(question).try_counts("V1").await), "Unavailable POLICY_UNAVAILABLE", "{question}");
        rig.stand.tell().away.clear();
    }
}

#[tokio::test]
async fn inv_21_reading_writes_nothing_to_redis_or_postgresql() {
    let wire = Wire::to(TestStack::get().redis_url()).await;
    let rig = Rig::with(&[("REDIS__URL", &wire.url)]).await;
    rig.stand.relations("lin+1@V1=1 lin+1@V2=2");
    rig.stand.tell().likers = ids("mei noa");
    rig.stand.row("V2", 8, 0, 0);
    rig.view(1, "V1", [5, 0, 0, 5], false).await;
    rig.view(1, "V3", [5, 0, 0, 6], false).await;
    let before = [rig.held("V1").await, rig.held("V2").await, rig.held("V3").await];
    let lin = rig.user("lin");
    eventually("views are read", async || match lin.counts("V1 V2 V3").await {
        text if text.starts_with("5 VISIBLE FRESH, 8 VISIBLE FRESH") => Ok(()),
        text => Err(text),
    })
    .await;
    lin.likes("V1 V2 V3 V4").await.expect("hearts");
    lin.my_likes(1, "").await.expect("a list");
    lin.likers("V1", 1, "").await.expect("a list");
    assert_eq!([rig.held("V1").await, rig.held("V2").await, rig.held("V3").await], before);
    let sent = wire.commands();
    assert!(sent.contains("HMGET"), "the views are read through the wire: {sent:?}");
    let reading = ["HMGET", "HELLO", "AUTH", "CLIENT", "INFO", "PING", "COMMAND", "SELECT", "ROLE", "CONFIG"];
    let others: BTreeSet<_> = sent.iter().filter(|name| !reading.contains(&name.as_str())).collect();
    assert!(others.is_empty(), "{others:?}");
    let sql = rig.config.database.connect().await.expect("connected");
    let sessions = "select count(*) from pg_stat_activity \
                    where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'";
    let tables = "select count(*) from pg_class where relnamespace::regnamespace::text !~ '^(pg_|information_schema)'";
    for text in [sessions, tables] {
        assert_eq!(sql.query_one(text, &[]).await.expect(text).get::<_, i64>(0), 0, "{text}");
    }
}
