// See host_defines.h: nothing of the toolkit's compiler checks is wanted here.
#pragma once
