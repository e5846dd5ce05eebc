//! `cargo dev demo`: one like from end to end on real servers, then a crowd, then two disasters.
//!
//! It speaks gRPC like any client, reads back what every part says, and succeeds only if every figure is right.

mod crowd;
mod disaster;
mod line;
mod look;
mod story;
mod tale;

use anyhow::{Result, bail};
use likewise_devstack::StackSpec;

use crate::site::{Site, step};
use crate::up::ended;

/// The video everybody likes.
const VIDEO: &str = "V9001";
/// Its author.
const AUTHOR: &str = "ava";
/// Who is followed through the story.
const LIN: &str = "lin";

/// How large to make it.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// People in the crowd
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    users: u32,
    /// Build and run the release profile
    #[arg(long)]
    release: bool,
}

/// Plays the whole story.
///
/// # Errors
/// When something does not start, or a figure is wrong.
pub async fn run(arguments: Arguments) -> Result<()> {
    tokio::select! {
        result = play(arguments) => result,
        () = ended() => bail!("interrupted"),
    }
}

async fn play(arguments: Arguments) -> Result<()> {
    let mut site = Site::start(StackSpec::default(), arguments.release, Vec::new()).await?;
    let mut tale = tale::Tale::default();
    let told = tell(&mut site, &mut tale, arguments.users).await;
    let log = site.process.log_tail();
    step("stopping");
    let stopped = site.stop().await;
    if let Err(error) = told {
        eprintln!("the log of the services ends with:\n{log}\n");
        return Err(error);
    }
    stopped?;
    tale.end()
}

async fn tell(site: &mut Site, tale: &mut tale::Tale, users: u32) -> Result<()> {
    story::open(site, tale).await?;
    story::lost_answer(site, tale).await?;
    story::changed_mind(site, tale).await?;
    look::follow(site, tale).await?;
    let expected = crowd::burst(site, tale, users).await?;
    look::whole(site, tale, &expected).await?;
    disaster::emptied_redis(site, tale, &expected).await?;
    disaster::killed(site, tale, &expected).await
}
