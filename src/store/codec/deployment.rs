//! The record of a deployment, as bytes: fields in the order of the struct.

use super::bytes::{CodecError, Reader, Result, Write};
use crate::core::deployment::{Deployment, SettledInstance, Stage};
use crate::core::types::{Scope, Version, WallTime};

const STAGES: [Stage; 3] = [Stage::Open, Stage::Committed, Stage::Reverted];

pub(super) fn put(out: &mut Vec<u8>, deployment: &Deployment) -> Result<()> {
    // The version is the mark of the record.
    let Deployment { name, plan, wishes, stage, uncommitted_since, settled, version: _ } = deployment;
    out.put_text(name.as_str());
    out.put_varint(*plan);
    out.put_u128(*wishes);
    out.put_u8(STAGES.iter().position(|other| other == stage).unwrap_or_default() as u8);
    // 0 means none: no deployment was uncommitted in 1970.
    out.put_varint(uncommitted_since.map_or(0, |since| since.0.saturating_add(1)));
    // If the list is empty nothing is written, as before the list existed.
    for SettledInstance { instance, reverted } in settled {
        out.put_u8(u8::from(*reverted));
        out.put_varint(*instance);
    }
    Ok(())
}

pub(super) fn read(mark: u64, reader: &mut Reader<'_>) -> Result<Deployment> {
    let name = reader.checked("deployment", Scope::new)?;
    let (plan, wishes) = (reader.varint("plan")?, reader.u128("wishes")?);
    let stage = reader.u8("stage")?;
    let stage = *STAGES.get(usize::from(stage)).ok_or(CodecError::Tag { what: "stage", tag: stage })?;
    let uncommitted_since = reader.varint("uncommitted_since")?.checked_sub(1).map(WallTime);
    let mut settled = Vec::new();
    while !reader.is_empty() {
        let reverted = match reader.u8("settled")? {
            0 => false,
            1 => true,
            tag => return Err(CodecError::Tag { what: "settled", tag }),
        };
        settled.push(SettledInstance { instance: reader.varint("settled")?, reverted });
    }
    Ok(Deployment { name, plan, wishes, stage, uncommitted_since, settled, version: Version(mark) })
}
