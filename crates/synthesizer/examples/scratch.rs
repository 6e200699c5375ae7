//! x
use std::time::Instant;
use stalloc_synthesizer::*;
use stalloc_trace::*;
fn rnd(s: &mut u64) -> u64 { *s = s.wrapping_add(0x9e3779b97f4a7c15); let mut z = *s; z = (z ^ (z >> 30)).wrapping_mul(0xbf58476d1ce4e5b9); z = (z ^ (z >> 27)).wrapping_mul(0x94d049bb133111eb); z ^ (z >> 31) }
/// A transformer-like step: `layers` layers x `micro` micro-batches; sizes with a little of everything.
fn job(steps: usize, layers: usize, micro: usize, per: usize) -> Trace {
    let mut b = TraceBuilder::new(0);
    let mut next = 1u64;
    let mut a = |b: &mut TraceBuilder, size: u64| { let n = next; next += 1; b.push(RawEvent::Alloc { address: n, size, stream: 0, stack: StackId::NONE }, None); n };
    let f = |b: &mut TraceBuilder, n: u64| { b.push(RawEvent::FreeCompleted { address: n, size: 0, stream: 0 }, None); };
    for l in 0..layers * 4 { let x = a(&mut b, 1 << 22); a(&mut b, (1 << 22) + (l as u64 % 7) * 4096); f(&mut b, x); }
    let mut states: Vec<u64> = vec![];
    let mut grads: Vec<u64> = vec![];
    for step in 0..steps {
        b.push(RawEvent::Mark(Mark::StepBegin), None);
        let mut s = 7u64;
        let fresh: Vec<u64> = std::mem::take(&mut grads);
        for g in fresh { f(&mut b, g); }
        for m in 0..micro {
            let mut acts = vec![];
            for l in 0..layers { for k in 0..per {
                let size = 512 * (1 + rnd(&mut s) % 40000 / (1 + (k as u64 % 9) * 20));
                let t = a(&mut b, size * 2); 
                let k2 = a(&mut b, size);
                if k % 3 == 0 { acts.push(t); f(&mut b, k2); } else { f(&mut b, t); if k % 3 == 1 { acts.push(k2) } else { f(&mut b, k2); } }
                let _ = l;
            } }
            for (i, t) in acts.into_iter().rev().enumerate() { let g = a(&mut b, 512 * (1 + rnd(&mut s) % 9000)); f(&mut b, t); let h = a(&mut b, 4096); f(&mut b, g); f(&mut b, h); 
                if m == 0 && i % per == 0 { grads.push(a(&mut b, 1 << 22)); } }
        }
        for l in 0..layers * 4 { if step == 0 { states.push(a(&mut b, 1 << 23)); } let t = a(&mut b, (1 << 22) + (l as u64 % 7) * 4096); f(&mut b, t); }
    }
    b.finish()
}
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (layers, micro, per): (usize, usize, usize) = (args[0].parse().unwrap(), args[1].parse().unwrap(), args[2].parse().unwrap());
    let trace = job(4, layers, micro, per);
    println!("{} requests", trace.requests.len());
    let t = Instant::now();
    let (p, s) = plan(&trace, &Options::default(), &mut |d, _| eprintln!("{d} ")).unwrap();
    println!("offline {:.3} s ratio {:.5} planned {} eff {:.4} {:?}", t.elapsed().as_secs_f64(), s.planned.ratio, s.planned.requests, s.efficiency, s.notes);
    let t = Instant::now();
    println!("check {} {:.3}", p.check().ok, t.elapsed().as_secs_f64());
    // Running: lowest free address with holes left
    let mut at: Vec<u64> = vec![0; trace.requests.len()];
    let mut live: std::collections::BTreeMap<u64, u64> = Default::default();
    let mut learner = Learner::new();
    let mut steps = 0;
    let t = Instant::now();
    let mut took = 0.0;
    for e in &trace.events {
        match e {
            Event::Mark(Mark::StepBegin) => learner.step_begin(),
            Event::Alloc(id) => {
                let size = trace.request(*id).rounded();
                let t = Instant::now();
                let mut pos = 0; for (&s, &e) in &live { if s - pos >= size { break } pos = e; }
                live.insert(pos, pos + size); at[id.index()] = pos;
                took += t.elapsed().as_secs_f64();
                learner.alloc(id.0.into(), size, 0);
                if learner.steps() > steps { steps = learner.steps();
                    if learner.is_draft_due() {
                        let t0 = Instant::now();
                        let d = learner.draft();
                        let t1 = t0.elapsed().as_secs_f64();
                        let walls: u64 = d.staying().map(|i| trace.requests[i as usize].rounded()).sum();
                        let t0 = Instant::now();
                        let p = d.plan(|i| Some(at[i as usize])).unwrap();
                        let t2 = t0.elapsed().as_secs_f64();
                        let free = d.plan(|_| None).unwrap();
                        let top = d.staying().map(|i| at[i as usize] + trace.requests[i as usize].rounded()).max().unwrap_or(0);
                        println!("draft {t1:.3} s, plan {t2:.3} s: arena {} = walls {} + steps alone {} -> {:.4}; walls' top {top} slots {}", p.arena, walls, free.arena, p.arena as f64 / (walls + free.arena) as f64, p.slots.len());
                    } }
            }
            Event::FreeCompleted(id) => { live.remove(&at[id.index()]); learner.free(id.0.into()) }
            _ => {}
        }
    }
    println!("hearing {:.1} ns per event", (t.elapsed().as_secs_f64() - took) * 1e9 / trace.events.len() as f64);
}
