//! What a user should know of a plan, in sentences.

use stalloc_plan::SectionKind;

use crate::dynamic::Room;
use crate::lifetimes::Natures;
use crate::parts::{Part, Program};
use crate::rounds::Witness;
use crate::sequence::Sequence;

/// Steps of a kind that should be recorded so that what varies is known.
const ENOUGH: usize = 4;

/// Steps that ask for this many times as much as others are of other lengths.
const VARIES: f64 = 1.1;

fn repeating(program: &Program) -> impl Iterator<Item = &Part> {
    program.parts.iter().filter(|part| part.kind == SectionKind::Repeating)
}

/// On the steps of a trace.
pub fn on_steps(sequence: &Sequence, program: &Program) -> Vec<String> {
    let kinds = repeating(program).count();
    if kinds == 0 {
        return vec![
            "no repetition was found: the trace is planned as it stands, and the plan fits a program that does exactly \
             the same; record three steps or more, with step marks if steps differ much"
                .to_owned(),
        ];
    }
    let by = match program.witness {
        Witness::Marks => "by marks",
        Witness::Annotations => "by annotations",
        Witness::Repetition | Witness::Nobody => "by repetition",
    };
    let steps = program.rounds.iter().filter(|round| program.is_step(round)).count();
    let kinds = if kinds == 1 { "one kind".to_owned() } else { format!("{kinds} kinds") };
    let mut notes = vec![format!("{steps} steps were found {by}, of {kinds}")];
    for part in repeating(program) {
        let whole = part.rounds.iter().filter(|&&round| program.rounds[round].whole).count();
        notes.push(match whole {
            0 | 1 => format!(
                "{}: recorded whole {}, so that only a first step could be compared with it; one step more tells \
                 static from dynamic requests",
                part.name,
                if whole == 0 { "never" } else { "once" },
            ),
            2..ENOUGH => format!(
                "{}: recorded whole {whole} times, enough to plan what never varies; {ENOUGH} or more tell how much the \
                 rest does",
                part.name
            ),
            _ => format!("{}: recorded whole {whole} times, enough", part.name),
        });
        let (least, most) = asked_for(sequence, program, part);
        if most as f64 > VARIES * least as f64 {
            notes.push(format!(
                "{}: asked for {:.1} to {:.1} GiB in all, as if lengths differed: a step larger than the largest recorded one \
                 needs more memory than the plan says, so record the largest that there is",
                part.name,
                least as f64 / (1u64 << 30) as f64,
                most as f64 / (1u64 << 30) as f64,
            ));
        }
    }
    notes
}

/// Bytes that the whole runs of a part asked for, all requests together: the least and the most.
fn asked_for(sequence: &Sequence, program: &Program, part: &Part) -> (u64, u64) {
    let whole = part.rounds.iter().map(|&round| &program.rounds[round]).filter(|round| round.whole);
    let bytes = whole.map(|round| {
        let sizes = &sequence.size[round.requests.start as usize..round.requests.end as usize];
        sizes.iter().fold(0, |sum: u64, &size| sum.saturating_add(size))
    });
    bytes.fold((u64::MAX, 0), |(least, most), bytes| (least.min(bytes), most.max(bytes)))
}

/// On a plan.
pub fn on_plan(sequence: &Sequence, program: &Program, natures: &Natures, room: &Room) -> Vec<String> {
    let mut notes = on_steps(sequence, program);
    if natures.copies > 1 && repeating(program).count() > 0 {
        notes.push(format!(
            "some tensors of a step are still alive when the next step allocates theirs, so steps take turns with {} \
             sets of addresses",
            natures.copies
        ));
    }
    if room.groups > 0 {
        let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
        notes.push(format!(
            "what differs from step to step was gathered into {} group{}: as large as they were seen they take up to {:.1} \
             MiB at once, and the plan keeps addresses for {:.1} MiB, enough for each in {:.1} % of the steps",
            room.groups,
            if room.groups == 1 { "" } else { "s" },
            mib(room.seen),
            mib(room.kept),
            100.0 * room.share_of_steps,
        ));
    }
    notes
}
