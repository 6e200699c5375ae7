"""What the programs of the bench share: pages of results, stalloc's command, a program's own processes, and clocks of steps."""
