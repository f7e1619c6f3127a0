//! `network.map` in cells: computed slice by slice, so that a network with many holdings stays available to others meanwhile.
//!
//! All cells are of one configuration. What is granted or released between two slices is counted if a later slice finds it.

use std::sync::Arc;

use super::{Coordinator, Done, Outcomes, lost};
use crate::actors::Fault;
use crate::actors::routes::Route;
use crate::core::command::{CellSize, Command, MapFormat, PoolRef, SubnetRef};
use crate::core::outcome::{Drawing, Outcome, PoolMap};
use crate::core::refusal::Refusal;
use crate::limits::{ANSWER_BYTES_MAX, MAP_CELLS_MAX};

/// How often a map begins again, because the network was reconfigured meanwhile, before it is refused.
const BEGUN_AGAIN_MAX: usize = 4;

impl Coordinator {
    /// `network.map` in cells.
    pub(super) async fn map_in_cells(
        &self,
        network: &str,
        part: &(Option<SubnetRef>, Option<PoolRef>),
        size: CellSize,
    ) -> Outcomes {
        let route = self.route(network)?;
        for _ in 0..=BEGUN_AGAIN_MAX {
            if let Some(map) = self.map_to_its_end(&route, part, size).await? {
                return Ok(Done::Outcome(map));
            }
        }
        let problem = format!("network `{network}` was reconfigured each time while its map was drawn; ask again");
        Err(Box::new(Fault::Overloaded { problem, retry_after_ms: 1_000 }))
    }

    /// Draws the map to its end. None: the configuration changed meanwhile.
    async fn map_to_its_end(
        &self,
        route: &Arc<Route>,
        part: &(Option<SubnetRef>, Option<PoolRef>),
        size: CellSize,
    ) -> Result<Option<Outcome>, Box<Fault>> {
        let (format, mut from) = (MapFormat::Cells(size), None);
        let (mut pools, mut first): (Vec<PoolMap>, _) = (Vec::new(), None);
        // Bytes of all pools but the last one.
        let mut bytes_before = 0;
        loop {
            let slice = self.ask(route, Command::Map { part: Box::new(part.clone()), format, from }).await?;
            let Outcome::Map { pools: more, version, next } = slice else { return Err(lost()) };
            if *first.get_or_insert(version) != version {
                return Ok(None);
            }
            for map in more {
                match pools.last_mut().filter(|last| last.range == map.range) {
                    Some(last) => last.drawing.go_on(map.drawing),
                    None => {
                        bytes_before += pools.last().map_or(0, |last| last.drawing.bytes_at_least());
                        pools.push(map);
                    }
                }
                within_bounds(&pools, bytes_before)
                    .map_err(|refusal| Box::new(Fault::Refused(refusal)))
                    .inspect_err(|fault| self.note_answer(route, fault))?;
            }
            if next.is_none() {
                return Ok(Some(Outcome::Map { pools, version, next }));
            }
            from = next;
        }
    }
}

/// Judges the pool that was drawn last, after those before it take `bytes_before` in an answer.
fn within_bounds(pools: &[PoolMap], bytes_before: usize) -> Result<(), Refusal> {
    let Some(PoolMap { range, drawing, .. }) = pools.last() else { return Ok(()) };
    let Drawing::Cells { prefix_length, cells } = drawing else { return Ok(()) };
    if cells.len() > MAP_CELLS_MAX {
        let problem = format!(
            "/{prefix_length} cuts pool {range} into more than {MAP_CELLS_MAX} cells; use a shorter prefix length"
        );
        return Err(Refusal::invalid("cell_prefix_length", problem));
    }
    // A single pool has a bound of its own.
    let bytes = bytes_before + drawing.bytes_at_least();
    if bytes > ANSWER_BYTES_MAX && pools.len() > 1 {
        let problem = "is needed: the cells of all pools do not fit into one answer; name one pool, or a subnet, or give a \
                       shorter `cell_prefix_length`";
        return Err(Refusal::invalid("pool", problem));
    }
    Ok(())
}
