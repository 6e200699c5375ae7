use stalloc_dryrun_setup::find;

use super::{Answer, LeverFigures, Row, Spill};

fn figures(step_us: u64, spill: Option<(u64, i64)>) -> LeverFigures {
    let spill = spill.map(|(step, added)| Spill { plan: serde_json::Value::Null, what: String::new(), step, added });
    LeverFigures {
        peak_allocated: 0,
        holders: Vec::new(),
        peak_reserved: Vec::new(),
        needed: None,
        fits: false,
        flops: None,
        step_us: Some(step_us),
        host_bytes: None,
        spill,
    }
}

#[test]
fn a_step_with_a_plan_to_spill_takes_what_the_last_step_of_its_trial_took() {
    let base = Row { lever: None, outcome: Ok(figures(58_250, None)), largest: None, is_end: false };
    let gpu = find("h100-80gb").unwrap();
    let answer = Answer {
        gpu,
        goal: 0,
        at: Vec::new(),
        base,
        rows: Vec::new(),
        skipped: Vec::new(),
        models: Vec::new(),
        combination: None,
        is_interrupted: false,
    };
    let said = |spill| answer.step_us(&figures(70_000, Some(spill)));
    // Of a U-Net with a GradScaler, whose fused optimizer spares a wait: its rehearsed step began before the host was ahead.
    assert_eq!(said((55_736_629, -20_597_282)), Some(35_139));
    assert_eq!(said((58_256_191, 16_500_000)), Some(74_756));
    // Nobody saw a step: as it is, and what the plan adds.
    assert_eq!(said((0, 3_000_000)), Some(61_250));
}
