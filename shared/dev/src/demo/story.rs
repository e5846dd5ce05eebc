//! Lin, one video, a lost answer and a change of mind.

use std::time::Duration;

use anyhow::{Result, anyhow};
use likewise_proto::types::v1::LikeState::{Liked, Unliked};

use super::line::Line;
use super::look::{answer, failed, operation, page, page_with, set, state, verdict};
use super::tale::Tale;
use super::{AUTHOR, LIN, VIDEO};
use crate::site::{Site, channel, eventually, may_pass, reason};

/// How long Lin's phone waits for an answer.
const PHONE_WAITS: Duration = Duration::from_secs(2);

/// Accounts, a video, and the page before anything happened.
pub(crate) async fn open(site: &Site, tale: &mut Tale) -> Result<()> {
    tale.chapter(&format!("Lin opens {VIDEO}"));
    let channel = site.channel()?;
    let (lin, author) = (site.person(&channel, LIN), site.person(&channel, AUTHOR));
    lin.register().await.map_err(failed("opening an account"))?;
    author.register().await.map_err(failed("opening an account"))?;
    for video in [VIDEO, "V9002"] {
        author.publish(video, "A cat opens a door").await.map_err(failed("publishing a video"))?;
    }
    let like = page_with(&lin, 0, None).await?;
    let seen = format!("{} v{}", state(like.my_state()), like.relation_version);
    tale.must("the heart is grey, the count 0", &seen.as_str(), &"UNLIKED v0");
    Ok(())
}

/// The like is committed, its answer is lost, and the retry gets the verdict of the first try.
pub(crate) async fn lost_answer(site: &Site, tale: &mut Tale) -> Result<()> {
    tale.chapter("Lin likes it, and the answer is lost on the way");
    let line = Line::lay(site.process.grpc()).await?;
    let phone = site.person(&channel(line.address())?, LIN);
    page(&phone, None).await.map_err(failed("looking through the line"))?;
    line.lose_answers();
    let lost = tokio::time::timeout(PHONE_WAITS, set(&phone, VIDEO, Liked, "op-101")).await;
    let told = match &lost {
        Err(_) => "no answer".to_owned(),
        Ok(Err(status)) => reason(status),
        Ok(Ok(response)) => answer(response),
    };
    tale.must(&format!("SetLike(op-101, LIKED) -> {told}"), &matches!(lost, Ok(Ok(_))), &false);

    let lin = site.person(&site.channel()?, LIN);
    let kept = eventually("op-101 has a verdict", PHONE_WAITS, || async {
        operation(&lin, "op-101").await.map_err(|status| reason(&status))
    })
    .await?;
    tale.must("GetOperation(op-101): it was committed", &verdict(Some(&kept)).as_str(), &"APPLIED LIKED v1");
    let again = set(&lin, VIDEO, Liked, "op-101").await.map_err(failed("sending op-101 again"))?;
    let expected = "APPLIED LIKED v1; now LIKED v1";
    tale.must("SetLike(op-101) again: the first verdict, no new version", &answer(&again).as_str(), &expected);
    let like = page_with(&lin, 1, Some(&again.position)).await?;
    let (heart, count) = (state(like.my_state()), like.count.and_then(|count| count.display));
    tale.must("the heart is red, and the count covers this change", &(heart, count), &("LIKED", Some(1)));
    Ok(())
}

/// The unlike, and a retry that is older than it.
pub(crate) async fn changed_mind(site: &Site, tale: &mut Tale) -> Result<()> {
    tale.chapter("Lin takes it back, and an old retry arrives late");
    let lin = site.person(&site.channel()?, LIN);
    let unlike = set(&lin, VIDEO, Unliked, "op-102").await.map_err(failed("op-102"))?;
    let expected = "APPLIED UNLIKED v2; now UNLIKED v2";
    tale.must("SetLike(op-102, UNLIKED)", &answer(&unlike).as_str(), &expected);
    let late = set(&lin, VIDEO, Liked, "op-101").await.map_err(failed("op-101, late"))?;
    let expected = "APPLIED LIKED v1; now UNLIKED v2";
    tale.must("SetLike(op-101) a third time changes nothing", &answer(&late).as_str(), &expected);
    let nothing = set(&lin, VIDEO, Unliked, "op-103").await.map_err(failed("op-103"))?;
    let expected = "UNCHANGED UNLIKED v2; now UNLIKED v2";
    tale.must("SetLike(op-103, UNLIKED) has nothing to take back", &answer(&nothing).as_str(), &expected);
    let reused = match set(&lin, "V9002", Liked, "op-101").await {
        Ok(response) => answer(&response),
        Err(status) if may_pass(&status) => return Err(anyhow!("op-101 for V9002: {}", reason(&status))),
        Err(status) => reason(&status),
    };
    tale.must("op-101 for another video is refused", &reused.as_str(), &"OPERATION_ID_REUSED");
    let like = page_with(&lin, 0, Some(&unlike.position)).await?;
    tale.must("the heart is grey again, the count 0", &state(like.my_state()), &"UNLIKED");
    Ok(())
}
