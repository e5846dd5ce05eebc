//! Every change and its event: together, in order, once in the stream.

use std::collections::BTreeMap;

use crate::world::{World, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_17_inv_18_changes_and_events_are_one_and_numbered_without_gaps() {
    let world = World::start().await;
    let people: Vec<_> = (0..6).map(|number| world.person(&format!("u{number}"))).collect();
    futures::future::join_all(people.iter().map(|person| async move {
        person.register(&person.name).await.unwrap();
        for number in 0..5 {
            let video = format!("{}-V{number}", person.name);
            person.create(&video).await.unwrap();
            person.delete_post(&video).await.unwrap();
        }
    }))
    .await;
    let rows = world.sql.query("select seq, event_id, schema from outbox order by seq", &[]).await.unwrap();
    let numbers: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(numbers, (1..=66).collect::<Vec<i64>>(), "dense, one per change");
    // Each object names the number of its last change.
    assert_eq!(world.number("select count(*) from post where version = 2 and change_seq > 0").await, 30);
    assert_eq!(world.number("select count(distinct change_seq) from post").await, 30);
    let mut schemas = BTreeMap::new();
    for row in &rows {
        *schemas.entry(row.get::<_, String>(2)).or_insert(0) += 1;
    }
    let expected = [("likewise.events.v1.AccountChanged", 6), ("likewise.events.v1.VideoPolicyChanged", 60)];
    assert_eq!(schemas, expected.map(|(name, count)| (name.to_owned(), count)).into());

    let client = async_nats::connect(&world.config.address.nats).await.unwrap();
    let jetstream = async_nats::jetstream::new(client);
    let name = format!("{}_CONTENT_0_E0", world.config.stream_prefix);
    let stream = eventually("the events are in the stream", async || {
        let stream = jetstream.get_stream(&name).await.map_err(|error| error.to_string())?;
        let last = stream.get_info().await.map_err(|error| error.to_string())?.state.last_sequence;
        if last == 66 { Ok(stream) } else { Err(format!("{last} of 66")) }
    })
    .await;
    for row in &rows {
        let seq = u64::try_from(row.get::<_, i64>(0)).unwrap();
        let message = stream.get_raw_message(seq).await.unwrap();
        let id = message.headers.get("Likewise-Event-Id").map(|value| value.as_str().to_owned());
        assert_eq!(id, Some(row.get::<_, uuid::Uuid>(1).to_string()), "offset and number are the same");
    }
}
