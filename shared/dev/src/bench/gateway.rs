//! A gateway: many users' commands over a few streams.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{FutureExt, StreamExt};
use likewise_proto::command::v1::like_command_service_client::LikeCommandServiceClient;
use likewise_proto::command::v1::{SetLikeStreamRequest, SetLikeStreamResponse};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;

use super::door::{Door, Sent, told, verdict};
use super::load::Load;

/// Streams at once, each on a connection of its own.
pub(crate) const STREAMS: usize = 4;
/// Longest wait for the next answer.
const ANSWER: Duration = Duration::from_secs(20);

/// Sends commands through the streams of a door, `in_flight` at once. A user's commands stay on one stream.
pub(crate) async fn send(door: &Door, commands: Vec<Sent>, in_flight: usize) -> Result<Load> {
    let streams = STREAMS.min(in_flight).max(1);
    let mut shares: Vec<Vec<Sent>> = vec![Vec::new(); streams];
    for command in commands {
        shares[command.user % streams].push(command);
    }
    let begin = Instant::now();
    let tasks = shares.into_iter().enumerate().map(|(number, share)| {
        let (channel, service, tokens) = (door.channel(number), door.service.clone(), door.bare_tokens.clone());
        tokio::spawn(converse(channel, service, tokens, share, in_flight / streams))
    });
    let mut whole = Load::default();
    for task in tasks.collect::<Vec<_>>() {
        whole.join(task.await??);
    }
    whole.conclude(begin.elapsed());
    Ok(whole)
}

async fn converse(
    channel: Channel,
    service: MetadataValue<Ascii>,
    tokens: Arc<Vec<String>>,
    commands: Vec<Sent>,
    window: usize,
) -> Result<Load> {
    let (sender, messages) = mpsc::channel(window.max(1));
    let mut request = Request::new(ReceiverStream::new(messages));
    request.metadata_mut().insert("authorization", service);
    let mut answers = LikeCommandServiceClient::new(channel).set_like_stream(request).await?.into_inner();
    let mut load = Load::default();
    let mut sent = Vec::with_capacity(commands.len());
    let mut answered = 0;
    while answered < commands.len() {
        while sent.len() < commands.len() && sent.len() - answered < window {
            let message = message(&commands[sent.len()], sent.len(), &tokens);
            sent.push(Instant::now());
            sender.send(message).await.context("the stream takes no more")?;
        }
        let mut next = tokio::time::timeout(ANSWER, answers.next()).await.context("no answer")?;
        // Whatever else is here already is taken before anything is sent.
        loop {
            let Some(answer) = next else { bail!("the stream ended with commands in flight") };
            record(&mut load, answer?, &commands, &sent)?;
            answered += 1;
            match answers.next().now_or_never() {
                Some(more) if answered < commands.len() => next = more,
                _ => break,
            }
        }
    }
    Ok(load)
}

fn message(command: &Sent, number: usize, tokens: &[String]) -> SetLikeStreamRequest {
    SetLikeStreamRequest {
        correlation_id: number as u64,
        user_token: tokens[command.user].clone(),
        command: Some(command.request()),
        ..SetLikeStreamRequest::default()
    }
}

fn record(load: &mut Load, answer: SetLikeStreamResponse, commands: &[Sent], sent: &[Instant]) -> Result<()> {
    let number = usize::try_from(answer.correlation_id)?;
    let (Some(command), Some(at)) = (commands.get(number), sent.get(number)) else {
        bail!("an answer to a command that was not sent");
    };
    let result = answer.result.context("an answer without a result")?;
    load.add(told(verdict(&result), command), at.elapsed());
    Ok(())
}
