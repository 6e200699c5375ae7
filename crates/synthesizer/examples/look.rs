use stalloc_trace::{Input, open};
fn main() {
    for path in std::env::args().skip(1) {
        let Ok(Input::Recording(recording)) = open(std::path::Path::new(&path), &mut |_, _| {}) else { continue };
        for trace in recording.traces.iter().filter(|t| !t.requests.is_empty()) {
            let steps = stalloc_synthesizer::steps(trace);
            println!("{path} dev {} {:?} {} requests", trace.device, steps.witness, trace.requests.len());
            let key = |i: usize| (trace.requests[i].rounded(), trace.requests[i].stream.0);
            let r = &steps.requests;
            for s in r.iter().take(40) {
                print!("{:?} ", s);
            }
            println!();
            for w in r.windows(2) {
                let (a, b) = (w[0].clone(), w[1].clone());
                let same = a.clone().zip(b.clone()).take_while(|&(i, j)| key(i as usize) == key(j as usize)).count();
                let (i, j) = (a.start as usize + same, b.start as usize + same);
                println!(
                    "lens {} {} equal prefix {} then {:?} vs {:?}",
                    a.len(),
                    b.len(),
                    same,
                    (i..(i + 4).min(a.end as usize)).map(key).collect::<Vec<_>>(),
                    (j..(j + 4).min(b.end as usize)).map(key).collect::<Vec<_>>()
                );
            }
        }
    }
}
