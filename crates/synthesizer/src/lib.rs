//! Trace to plan: finds the steps of a trace, tells persistent, static and dynamic requests apart, plans the steady
//! state as a cyclic instance, and fits everything else around it.
