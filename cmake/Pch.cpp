// Exists to give the precompiled header (Pch.h) a target.
