"""What every part of the package needs: lines for the user, callbacks on imports, ranks, numbers."""
