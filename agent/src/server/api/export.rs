//! A run's losses as a table for other programs.

use std::{fmt::Write as _, sync::Arc};

use axum::{
    body::{Body, Bytes},
    extract::{Path, State as Extract},
    http::{HeaderValue, header},
    response::Response,
};
use futures_util::stream::try_unfold;
use headroom_shared::protocol::event::{Event, What};

use super::{query, runs::EVENTS_MAX};
use crate::server::{
    State,
    archive::{Archive, asked},
    error::Refusal,
};

const HEAD: &str = "time_ms,iter,loss,train_loss,val_loss,iteration_ms,tokens_per_second,mfu_percent,\
                    learning_rate,gradient_norm\n";

/// `GET /api/runs/{id}/export.csv`: written as it is read, so that a run of days takes no more memory than one of
/// minutes.
pub async fn csv(Extract(state): Extract<Arc<State>>, Path(id): Path<String>) -> Result<Response, Refusal> {
    let id = query::run(id)?;
    let run = id.clone();
    asked(&state.archive, move |archive| archive.run(&run)).await?;
    let name = format!("attachment; filename=\"headroom-{id}.csv\"");
    let head = Some((Bytes::from_static(HEAD.as_bytes()), 0));
    let rows = try_unfold((Arc::clone(&state.archive), id, head, 0), async |(archive, id, head, after)| {
        if let Some((head, after)) = head {
            return Ok(Some((head, (archive, id, None, after))));
        }
        let run = id.clone();
        let events = asked(&archive, move |archive: &dyn Archive| {
            archive.events(Some(&run), after, usize::try_from(EVENTS_MAX).unwrap_or(usize::MAX))
        });
        // A connection that breaks off says that the table is not whole.
        let events = events.await.map_err(|_| std::io::Error::other("history cannot be read"))?;
        let Some(last) = events.last() else { return Ok::<_, std::io::Error>(None) };
        let after = last.id;
        Ok(Some((Bytes::from(rows(&events)), (archive, id, None, after))))
    });
    let mut response = Response::new(Body::from_stream(rows));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8"));
    headers.insert(
        header::CONTENT_DISPOSITION,
        HeaderValue::try_from(name).unwrap_or(HeaderValue::from_static("attachment")),
    );
    Ok(response)
}

/// Numbers alone, and nothing where there is none: no field needs quotes.
fn rows(events: &[Event]) -> String {
    let field = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    events.iter().fold(String::new(), |mut rows, Event { time_ms, what, .. }| {
        let _ = match what {
            What::RunIteration(it) => writeln!(
                rows,
                "{time_ms},{},{},,,{},{},{},{},{}",
                it.iter,
                field(it.loss),
                it.time_ms,
                field(it.tokens_per_second),
                field(it.mfu_percent),
                field(it.learning_rate),
                field(it.gradient_norm)
            ),
            What::RunEvaluation(it) => {
                writeln!(rows, "{time_ms},{},,{},{},,,,,", it.iter, field(it.train_loss), field(it.val_loss))
            }
            _ => Ok(()),
        };
        rows
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_shared::protocol::run::{Evaluation, Iteration};

    #[test]
    fn every_row_has_the_heads_columns() {
        let iteration = Iteration {
            iter: 7,
            loss: None,
            time_ms: 1.5,
            tokens_per_second: Some(1e3),
            mfu_printed_percent: None,
            mfu_percent: Some(0.25),
            learning_rate: Some(6e-4),
            gradient_norm: Some(0.5),
        };
        let evaluation = Evaluation { iter: 8, train_loss: Some(2.5), val_loss: Some(3.0) };
        let event = |what| Event { id: 1, time_ms: 9, run: None, what };
        let text = rows(&[
            event(What::RunIteration(iteration)),
            event(What::RunDeleted { name: None }),
            event(What::RunEvaluation(evaluation)),
        ]);
        assert_eq!(text, "9,7,,,,1.5,1000,0.25,0.0006,0.5\n9,8,,2.5,3,,,,,\n");
        for row in text.lines() {
            assert_eq!(row.matches(',').count(), HEAD.matches(',').count(), "{row}");
        }
    }
}
