pub struct Step;
pub fn sequence(){}
