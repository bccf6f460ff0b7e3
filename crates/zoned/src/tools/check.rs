//! `tombolo zoned fsck`: what the metadata says, compared with what the device does. It repairs
//! nothing.

use std::collections::BTreeMap;

use tombolo_storage::Result;

use crate::device::{Device, ZoneState};
use crate::failed;
use crate::objects::check_hash;
use crate::volume::Core;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether something that was acknowledged is damaged or gone.
    pub is_damage: bool,
    /// The zone, where it is of one.
    pub zone: Option<u32>,
    /// Names that lead to it.
    pub names: Vec<String>,
    /// What.
    pub what: String,
}

/// Checks a device; with `scrub`, every byte of every body is read and compared with its hash.
///
/// # Errors
/// The device's; damage is a finding.
pub fn check(core: &Core, scrub: bool) -> Result<Vec<Finding>> {
    let report = core.device.report().map_err(|error| failed(&core.device, error, "looking at zones"))?;
    let state = core.state.read().clone();
    let mut findings = Vec::new();
    for note in &core.notes {
        findings.push(Finding { is_damage: false, zone: None, names: Vec::new(), what: note.clone() });
    }
    let mut names: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for (name, body) in &state.names {
        names.entry(*body).or_default().push(name.to_string());
    }
    let names_of = |body: u64| names.get(&body).cloned().unwrap_or_default();
    let mut taken: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
    let block = core.block() as u64;
    for (&number, body) in &state.bodies {
        if body.names == 0 {
            let what = format!("body {number} has no name");
            findings.push(Finding { is_damage: false, zone: None, names: Vec::new(), what });
        }
        for extent in body.extents.iter() {
            let begin = u64::from(extent.block) * block;
            let end = begin + extent.bytes.next_multiple_of(block);
            let zone = &report[extent.zone as usize];
            let mut damage = |what: String| {
                let names = names_of(number);
                findings.push(Finding { is_damage: true, zone: Some(extent.zone), names, what });
            };
            if zone.state == ZoneState::Offline {
                damage(format!("zone {} is offline, with {} bytes in it", extent.zone, extent.bytes));
                continue;
            }
            if zone.pointer < end && zone.state != ZoneState::ReadOnly {
                damage(format!(
                    "zone {} was written up to byte {}, and bytes {begin} to {end} are named",
                    extent.zone, zone.pointer
                ));
                continue;
            }
            if scrub {
                let mut bytes = vec![0; usize::try_from(extent.bytes).unwrap_or(usize::MAX)];
                let read = core
                    .device
                    .read(extent.zone, begin, &mut bytes)
                    .map_err(|error| core.read_failed(error, extent.zone))
                    .and_then(|()| check_hash(core, extent, &bytes));
                if let Err(error) = read {
                    damage(error.to_string());
                }
            }
            taken.insert((extent.zone, extent.block), (end / block, number));
        }
    }
    let mut last: Option<(u32, u64, u64)> = None;
    for ((zone, from), (to, body)) in taken {
        if let Some((before, end, other)) = last
            && before == zone
            && u64::from(from) < end
        {
            let names = names_of(body).into_iter().chain(names_of(other)).collect();
            let what = format!("bodies {other} and {body} share blocks of zone {zone}");
            findings.push(Finding { is_damage: true, zone: Some(zone), names, what });
        }
        last = Some((zone, to, body));
    }
    for (number, zone) in (0_u32..).zip(&report) {
        if matches!(zone.state, ZoneState::ReadOnly | ZoneState::Offline) {
            let what = format!("zone {number} is {}", zone.state.name());
            findings.push(Finding { is_damage: false, zone: Some(number), names: Vec::new(), what });
        }
    }
    for damage in core.log_damage() {
        findings.push(Finding { is_damage: true, zone: None, names: Vec::new(), what: damage });
    }
    Ok(findings)
}

impl Core {
    /// The damage of the log, as far as was read.
    fn log_damage(&self) -> Vec<String> {
        let Ok(report) = self.device.report() else { return Vec::new() };
        let state = self.state.read();
        match crate::lanes::LogCore::recover(&self.device, self.id, &state, &report) {
            Ok(log) => log.damage(),
            Err(error) => vec![error.to_string()],
        }
    }
}
